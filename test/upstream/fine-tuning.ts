import { asCount, asObject, asText, type JsonObject } from "./json.ts";
import { refusal } from "./wire.ts";

/** How trainings go; looked up at every request by the job's suffix, so that it can be changed under way. */
export interface TuningPlan {
  /** How often the job is read while it waits, then while it runs, before it ends. */
  waitingReads?: number;
  runningReads?: number;
  outcome?: "succeeded" | "failed" | "cancelled" | "never";
  /** Null tells none. */
  trainedTokens?: number | null;
  /** What becomes of creating: made but never answered, refused, or answered with what is no job. */
  create?: "cut" | "garbage" | "refuse" | "unauthorized" | "busy";
  /** For how many creations that holds; for all unless told otherwise. */
  createTimes?: number;
  /** What reading the job gives instead of it. */
  read?: "lost" | "garbage" | "unavailable";
  /** For how many reads that holds; for all unless told otherwise. */
  readTimes?: number;
  /** What is done, but not answered while this plan stands. Uploads have the plan `UPLOADS`. */
  stall?: "upload" | "create" | "read" | "cancel";
  /**
   * Files and jobs are not listed, and nothing is deleted; or jobs not by their metadata; or there is no
   * answer to any of it for now. Of the plan `LISTS`.
   */
  lacks?: "lists" | "filter" | "answers";
}

/** The suffix of the plan for files, whose uploads tell no suffix. */
export const UPLOADS = "uploads";
/** The suffix of the plan for what concerns no single training. */
export const LISTS = "lists";
const STALL_POLL_MS = 10;

export interface UpstreamFile {
  id: string;
  filename: string;
  content: string;
  isDeleted: boolean;
}

export interface UpstreamJob {
  id: string;
  suffix: string;
  request: JsonObject;
  reads: number;
  createdAt: number;
  isCancelled: boolean;
}

/** Files, jobs and tuned models of an upstream; JSON, so that it can be sent from a separate process. */
export interface TuningRecords {
  files: UpstreamFile[];
  jobs: UpstreamJob[];
  deletedModels: string[];
}

const DEFAULT_PLAN: Required<Pick<TuningPlan, "waitingReads" | "runningReads" | "outcome">> = {
  waitingReads: 1,
  runningReads: 1,
  outcome: "succeeded",
};
const LOSS_OF_STEP = 0.5;

/** OpenAI's endpoints for files and fine-tuning jobs, as its published description has them. */
export class UpstreamTuning {
  readonly records: TuningRecords = { files: [], jobs: [], deletedModels: [] };
  readonly #plans = new Map<string, TuningPlan>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** From now on, for trainings with that suffix. */
  plan(suffix: string, plan: TuningPlan): void {
    this.#plans.set(suffix, plan);
  }

  reset(): void {
    this.records.files = [];
    this.records.jobs = [];
    this.records.deletedModels = [];
    this.#plans.clear();
  }

  /**
   * Undefined where the path is none of these; null where the connection is to be cut.
   *
   * @param form of an upload
   */
  async answer(
    request: Request,
    url: URL,
    form: FormData | undefined,
  ): Promise<Response | null | undefined> {
    const isOfOne = /\/jobs\/./.test(url.pathname) || request.method === "POST";
    const lacks = isOfOne ? undefined : this.#plans.get(LISTS)?.lacks;
    if (lacks === "lists") return refusal(405, "Not allowed");
    if (lacks === "answers") return refusal(503, "Not now");
    const [, root, resource, rest = ""] =
      /^\/v1\/([a-z_]+)\/?([^/]*)\/?(.*)$/.exec(url.pathname) ?? [];
    if (root === "files") return this.#files(request, resource ?? "", form);
    if (root === "models" && request.method === "DELETE") {
      const id = decodeURIComponent(url.pathname.slice("/v1/models/".length));
      this.records.deletedModels.push(id);
      return Response.json({ id, object: "model", deleted: true });
    }
    if (root !== "fine_tuning" || resource !== "jobs") return undefined;
    const [id = "", verb = ""] = rest.split("/");
    return this.#jobs(request, url, id, verb);
  }

  async #files(request: Request, id: string, form: FormData | undefined): Promise<Response> {
    const { files } = this.records;
    if (form !== undefined) {
      const file = form.get("file");
      if (!(file instanceof Blob)) return refusal(400, "there is no file");
      if (form.get("purpose") !== "fine-tune") return refusal(400, "the purpose is wrong");
      const added: UpstreamFile = {
        id: `file-${files.length + 1}`,
        filename: (file as File).name,
        content: await file.text(),
        isDeleted: false,
      };
      files.push(added);
      await this.#stalled(UPLOADS, "upload");
      return Response.json(fileShape(added));
    }
    if (request.method === "GET") {
      const data = files.filter(({ isDeleted }) => !isDeleted).map(fileShape);
      return Response.json({ object: "list", data: data.reverse(), has_more: false });
    }
    const file = files.find((one) => one.id === id && !one.isDeleted);
    if (file === undefined) return refusal(404, `No such File object: ${id}`);
    file.isDeleted = true;
    return Response.json({ id, object: "file", deleted: true });
  }

  async #jobs(request: Request, url: URL, id: string, verb: string): Promise<Response | null> {
    if (id === "") return request.method === "POST" ? this.#create(request) : this.#list(url);
    const job = this.records.jobs.find((one) => one.id === id);
    if (job === undefined) return refusal(404, `Could not find fine tune: ${id}`);
    if (verb === "cancel") {
      if (isOver(this.#statusOf(job))) return refusal(400, "Job has already completed");
      job.isCancelled = true;
      await this.#stalled(job.suffix, "cancel");
      return Response.json(this.#shapeOf(job));
    }
    return verb === "events" ? this.#events(job) : this.#read(job);
  }

  async #create(request: Request): Promise<Response | null> {
    const body = asObject(await request.json());
    const suffix = asText(body.suffix);
    const plan = this.#plans.get(suffix);
    const trouble = takeTrouble(plan, "create");
    if (trouble === "refuse") return refusal(400, "the training file has too\0 few examples");
    if (trouble === "unauthorized") return refusal(401, "Incorrect API key provided");
    if (trouble === "busy") {
      return new Response("{}", { status: 429, headers: { "retry-after": "1" } });
    }
    const file = this.records.files.find(({ id }) => id === body.training_file);
    if (file === undefined || file.isDeleted) return refusal(400, "invalid training_file");
    const job: UpstreamJob = {
      id: `ftjob-${this.records.jobs.length + 1}`,
      suffix,
      request: body,
      reads: 0,
      createdAt: Math.floor(this.#nowMs() / 1000),
      isCancelled: false,
    };
    this.records.jobs.push(job);
    await this.#stalled(suffix, "create");
    if (trouble === "cut") return null;
    if (trouble === "garbage") return Response.json({ object: "nothing" });
    return Response.json(this.#shapeOf(job));
  }

  async #stalled(suffix: string, what: TuningPlan["stall"]): Promise<void> {
    while (this.#plans.get(suffix)?.stall === what) await Bun.sleep(STALL_POLL_MS);
  }

  #list(url: URL): Response {
    const wanted = [...url.searchParams].flatMap(([name, value]) => {
      const key = /^metadata\[(.+)\]$/.exec(name)?.[1];
      return key === undefined ? [] : [{ key, value }];
    });
    if (wanted.length > 0 && this.#plans.get(LISTS)?.lacks === "filter") {
      return refusal(400, "Unknown query parameter");
    }
    const found = this.records.jobs.filter(({ request }) =>
      wanted.every(({ key, value }) => asObject(request.metadata)[key] === value),
    );
    const data = found.map((job) => this.#shapeOf(job)).reverse();
    return Response.json({ object: "list", data, has_more: false });
  }

  async #read(job: UpstreamJob): Promise<Response> {
    await this.#stalled(job.suffix, "read");
    const trouble = takeTrouble(this.#plans.get(job.suffix), "read");
    if (trouble === "lost") return refusal(404, `Could not find fine tune: ${job.id}`);
    if (trouble === "garbage") return new Response("<html>", { status: 200 });
    if (trouble === "unavailable") return new Response("{}", { status: 503 });
    job.reads += 1;
    return Response.json(this.#shapeOf(job));
  }

  /** Newest first, as OpenAI lists them. */
  #events(job: UpstreamJob): Response {
    const status = this.#statusOf(job);
    const messages = ["Created fine-tuning job"];
    if (status !== "queued")
      messages.push("Fine-tuning job started", "Step 1/2: training loss=0.50");
    if (isOver(status)) messages.push(`Job ${status}`);
    const data = messages.map((message, index) => ({
      object: "fine_tuning.job.event",
      id: `ftevent-${job.id}-${index}`,
      created_at: job.createdAt + index,
      level: "info",
      message,
      type: message.startsWith("Step") ? "metrics" : "message",
      data: message.startsWith("Step") ? { step: 1, total_steps: 2, train_loss: LOSS_OF_STEP } : {},
    }));
    return Response.json({ object: "list", data: data.reverse(), has_more: false });
  }

  #statusOf(job: UpstreamJob): string {
    if (job.isCancelled) return "cancelled";
    const plan = { ...DEFAULT_PLAN, ...this.#plans.get(job.suffix) };
    if (job.reads <= plan.waitingReads) return "queued";
    if (plan.outcome === "never") return "running";
    return job.reads <= plan.waitingReads + plan.runningReads ? "running" : plan.outcome;
  }

  #shapeOf(job: UpstreamJob): JsonObject {
    const status = this.#statusOf(job);
    const { request } = job;
    const hasSucceeded = status === "succeeded";
    const epochs = asCount(
      asObject(asObject(asObject(request.method).supervised).hyperparameters).n_epochs,
    );
    const file = this.records.files.find(({ id }) => id === request.training_file);
    const trained = Math.ceil((file?.content.length ?? 0) / 8) * epochs;
    const told = this.#plans.get(job.suffix)?.trainedTokens;
    return {
      object: "fine_tuning.job",
      id: job.id,
      model: request.model,
      created_at: job.createdAt,
      status,
      fine_tuned_model: hasSucceeded
        ? `ft:${asText(request.model)}:up:${job.suffix}:${job.id}`
        : null,
      trained_tokens: hasSucceeded ? (told === undefined ? trained : told) : null,
      estimated_finish: null,
      error:
        status === "failed"
          ? { code: "exploded", message: "The training exploded.", param: null }
          : { code: null, message: null, param: null },
      metadata: request.metadata,
      result_files: [],
    };
  }
}

/** The trouble that is planned for this request, counted down. */
function takeTrouble<Kind extends "create" | "read">(
  plan: TuningPlan | undefined,
  kind: Kind,
): TuningPlan[Kind] | undefined {
  const times = `${kind}Times` as const;
  if (plan === undefined || plan[kind] === undefined) return undefined;
  const left = plan[times];
  if (left === undefined) return plan[kind];
  if (left <= 0) return undefined;
  plan[times] = left - 1;
  return plan[kind];
}

function isOver(status: string): boolean {
  return ["succeeded", "failed", "cancelled"].includes(status);
}

function fileShape(file: UpstreamFile): JsonObject {
  return {
    id: file.id,
    object: "file",
    bytes: file.content.length,
    filename: file.filename,
    purpose: "fine-tune",
  };
}
