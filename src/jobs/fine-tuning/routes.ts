import { type Static, Type } from "typebox";
import type { JobEvent } from "../../../db/queries/fine-tuning-events.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { eventStream } from "../../http/event-stream.ts";
import {
  type Access,
  nullable,
  organizationOf,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { assertTagged } from "../../inference/call/endpoint.ts";
import { type Hyperparameters, JOB_STATUSES, type JobRecord } from "../../lib/fine-tuning-job.ts";
import type { FeedItem } from "./event-feed.ts";
import type { FineTuning, JobRequest } from "./fine-tuning.ts";

const DEFAULT_PAGE = 20;
const MAX_PAGE = 100;
const DEFAULT_EPOCHS = 3;
const MAX_EPOCHS = 50;
const MAX_BATCH_SIZE = 256;
const MAX_NAME_CHARACTERS = 256;
const MAX_SEED = 2_147_483_647;
const MAX_METADATA = 16;

const optional = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Optional(nullable(schema));
const auto = Type.Literal("auto");
const name = (description: string) =>
  Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS, description });

const hyperparameters = Type.Object(
  {
    n_epochs: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: MAX_EPOCHS }), auto], {
        default: "auto",
        description: `The value auto means ${DEFAULT_EPOCHS}.`,
      }),
    ),
    batch_size: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: MAX_BATCH_SIZE }), auto], {
        default: "auto",
      }),
    ),
    learning_rate_multiplier: Type.Optional(
      Type.Union([Type.Number({ exclusiveMinimum: 0, maximum: 1000 }), auto], {
        default: "auto",
      }),
    ),
  },
  { title: "FineTuningHyperparameters", additionalProperties: false },
);

const createJobBody = Type.Object(
  {
    model: name("Id of the base model, with its dated suffix if it has one."),
    training_file: name("Id of a file with the purpose fine-tune."),
    validation_file: optional(name("Id of a file with the purpose fine-tune.")),
    hyperparameters: optional(hyperparameters),
    method: optional(
      Type.Object(
        {
          type: Type.Literal("supervised"),
          supervised: Type.Optional(
            Type.Object(
              { hyperparameters: Type.Optional(hyperparameters) },
              { additionalProperties: false },
            ),
          ),
        },
        { additionalProperties: false, description: "Alternative to the member hyperparameters." },
      ),
    ),
    suffix: optional(
      Type.String({
        pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description: "Part of the fine-tuned model's id: 1 to 64 letters, digits, . _ -.",
      }),
    ),
    seed: optional(Type.Integer({ minimum: 0, maximum: MAX_SEED })),
    metadata: optional(
      Type.Record(Type.String(), Type.String({ maxLength: 512 }), {
        maxProperties: MAX_METADATA,
        // The schema does not check the length of a record's key type.
        propertyNames: { minLength: 1, maxLength: 64 },
        description: "Stored with the job.",
      }),
    ),
  },
  {
    additionalProperties: false,
  },
);

const page = {
  after: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MAX_NAME_CHARACTERS,
      description: "Id of the last entry of the previous page.",
    }),
  ),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
};

const pageQuery = Type.Object(page, { additionalProperties: false });

const unixSeconds = Type.Integer({ description: "Unix seconds." });

const job = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("fine_tuning.job"),
    model: Type.String({ description: "Base model." }),
    created_at: unixSeconds,
    finished_at: nullable(unixSeconds),
    status: Type.Enum([...JOB_STATUSES]),
    training_file: Type.String(),
    validation_file: nullable(Type.String()),
    hyperparameters: Type.Object({
      n_epochs: Type.Integer(),
      batch_size: Type.Union([Type.Integer(), auto]),
      learning_rate_multiplier: Type.Union([Type.Number(), auto]),
    }),
    fine_tuned_model: nullable(
      Type.String({
        description: "Id of the tuned model for chat completions, set when the job has succeeded.",
      }),
    ),
    estimated_finish: nullable(unixSeconds),
    error: nullable(
      Type.Object({
        code: Type.String(),
        message: Type.String(),
        param: nullable(Type.String()),
      }),
    ),
    trained_tokens: nullable(Type.Integer({ description: "Billed tokens of all epochs." })),
    organization_id: Type.String(),
    result_files: Type.Array(Type.String()),
    seed: Type.Integer(),
    suffix: nullable(Type.String()),
    metadata: nullable(Type.Record(Type.String(), Type.String())),
  },
  { title: "FineTuningJob" },
);

const jobList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(job),
    has_more: Type.Boolean(),
  },
  { title: "FineTuningJobList" },
);

const jobEvent = Type.Object(
  {
    object: Type.Literal("fine_tuning.job.event"),
    id: Type.String(),
    created_at: unixSeconds,
    level: Type.Enum(["info", "warn", "error"]),
    message: Type.String(),
    type: Type.Enum(["message", "metrics"]),
    data: Type.Record(Type.String(), Type.Unknown()),
  },
  { title: "FineTuningJobEvent" },
);

const eventList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(jobEvent),
    has_more: Type.Boolean(),
  },
  { title: "FineTuningJobEventList" },
);

const access: Access = { kind: "model", scope: "fine_tuning" };
const tag = "Fine-tuning";
const NOT_FOUND = { description: "There is no such job." } as const;

type Setting = number | "auto";

interface StatedHyperparameters {
  readonly n_epochs?: Setting;
  readonly batch_size?: Setting;
  readonly learning_rate_multiplier?: Setting;
}

interface CreateBody {
  readonly model: string;
  readonly training_file: string;
  readonly validation_file?: string | null;
  readonly hyperparameters?: StatedHyperparameters | null;
  readonly method?: {
    readonly supervised?: { readonly hyperparameters?: StatedHyperparameters };
  } | null;
  readonly suffix?: string | null;
  readonly seed?: number | null;
  readonly metadata?: Record<string, string> | null;
}

/** Returns the fine-tuning routes (spec 4.10). */
export function fineTuningRoutes(fineTuning: FineTuning): RouteDefinition[] {
  return [
    createRoute(fineTuning),
    route({
      method: "GET",
      path: "/v1/fine_tuning/jobs",
      tag,
      operationId: "fine_tuning.jobs.list",
      summary: "List fine-tuning jobs",
      access,
      query: pageQuery,
      responses: { 200: { description: "A page of jobs, newest first.", schema: jobList } },
      async handle(context) {
        const { jobs, hasMore } = await fineTuning.list(
          organizationOf(context),
          pageOf(context.query),
        );
        return jsonResponse({ object: "list", data: jobs.map(jobShape), has_more: hasMore });
      },
    }),
    route({
      method: "GET",
      path: "/v1/fine_tuning/jobs/:id",
      tag,
      operationId: "fine_tuning.jobs.retrieve",
      summary: "Retrieve fine-tuning job",
      access,
      responses: { 200: { description: "The job.", schema: job }, 404: NOT_FOUND },
      async handle(context) {
        const job = await fineTuning.find(organizationOf(context), context.params.id);
        return jsonResponse(jobShape(job));
      },
    }),
    eventsRoute(fineTuning),
    route({
      method: "POST",
      path: "/v1/fine_tuning/jobs/:id/cancel",
      tag,
      operationId: "fine_tuning.jobs.cancel",
      summary: "Cancel fine-tuning job",
      access,
      responses: {
        200: { description: "The cancelled job. Nothing is charged.", schema: job },
        404: NOT_FOUND,
        409: { description: "The job has ended." },
      },
      async handle(context) {
        const job = await fineTuning.cancel(organizationOf(context), context.params.id);
        return jsonResponse(jobShape(job));
      },
    }),
  ];
}

function createRoute(fineTuning: FineTuning): RouteDefinition {
  return route({
    method: "POST",
    path: "/v1/fine_tuning/jobs",
    tag,
    operationId: "fine_tuning.jobs.create",
    summary: "Create fine-tuning job",
    access,
    body: createJobBody,
    responses: {
      200: { description: "The queued job. Its maximum cost is held until it ends.", schema: job },
      400: { description: "A file or the model cannot be used for fine-tuning." },
    },
    async handle(context) {
      const request = requestOf(context.body);
      const { job, headers } = await fineTuning.create(context, request);
      context.log.model = job.baseModel;
      const response = jsonResponse(jobShape(job));
      for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
      return response;
    },
  });
}

function eventsRoute(fineTuning: FineTuning): RouteDefinition {
  return route({
    method: "GET",
    path: "/v1/fine_tuning/jobs/:id/events",
    tag,
    operationId: "fine_tuning.jobs.events.list",
    summary: "List fine-tuning events",
    access,
    query: pageQuery,
    responses: {
      200: {
        description:
          "Events, newest first. With Accept: text/event-stream, a stream of events, oldest first, from the first or after Last-Event-ID until [DONE].",
        schema: eventList,
      },
      404: NOT_FOUND,
    },
    async handle(context) {
      const organizationId = organizationOf(context);
      const id = context.params.id;
      if (wantsEventStream(context.request)) {
        const lastEventId = context.request.headers.get("last-event-id");
        const { signal } = context.request;
        const follower = { signal, assertAllowed: () => context.admitAgain() };
        const feed = await fineTuning.follow(organizationId, id, lastEventId, follower);
        return feedResponse(feed, context.keepOpen());
      }
      const { events, hasMore } = await fineTuning.events(
        organizationId,
        id,
        pageOf(context.query),
      );
      return jsonResponse({ object: "list", data: events.map(eventShape), has_more: hasMore });
    },
  });
}

function pageOf({ after, limit = DEFAULT_PAGE }: Static<typeof pageQuery>) {
  return { after, limit };
}

/** Returns the request of a body. Throws 400 if the metadata has too many tags. */
function requestOf(body: CreateBody): JobRequest {
  assertTagged(body.metadata);
  return {
    model: body.model,
    trainingFile: body.training_file,
    validationFile: body.validation_file ?? null,
    suffix: body.suffix ?? null,
    seed: body.seed ?? null,
    hyperparameters: hyperparametersOf({
      ...body.method?.supervised?.hyperparameters,
      ...body.hyperparameters,
    }),
    metadata: body.metadata ?? null,
  };
}

/**
 * Returns the hyperparameters. `auto` leaves them to the provider, except the epochs, which determine the
 * price.
 */
function hyperparametersOf(stated: StatedHyperparameters): Hyperparameters {
  const {
    n_epochs: epochs = "auto",
    batch_size = "auto",
    learning_rate_multiplier = "auto",
  } = stated;
  return {
    n_epochs: epochs === "auto" ? DEFAULT_EPOCHS : epochs,
    batch_size,
    learning_rate_multiplier,
  };
}

const KEEPALIVE = ": keepalive\n\n";
/** A weight of zero, which excludes a type (RFC 9110, section 12.4.2). */
const EXCLUDED = /^q=0(\.0*)?$/;
const DONE = "data: [DONE]\n\n";

/** Returns true if the client wants server-sent events instead of a list. */
function wantsEventStream(request: Request): boolean {
  const accepted = request.headers.get("accept") ?? "";
  return accepted.split(",").some((range) => {
    const [name, ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return (
      name === "text/event-stream" && !parameters.some((parameter) => EXCLUDED.test(parameter))
    );
  });
}

/** Returns a feed as server-sent events: one frame per event with its id, and `[DONE]` when the job has ended. */
export function feedResponse(feed: AsyncIterable<FeedItem>, onOver: () => void): Response {
  const headers = { "cache-control": "no-cache", connection: "keep-alive" };
  return eventStream(framesOf(feed, onOver), headers);
}

async function* framesOf(
  feed: AsyncIterable<FeedItem>,
  onOver: () => void,
): AsyncGenerator<string> {
  try {
    for await (const item of feed) yield frameOf(item);
  } finally {
    onOver();
  }
}

function frameOf(item: FeedItem): string {
  switch (item.kind) {
    case "event":
      return `id: ${item.event.id}\ndata: ${JSON.stringify(eventShape(item.event))}\n\n`;
    case "quiet":
      return KEEPALIVE;
    case "done":
      return DONE;
  }
}

/** Returns the job object of spec 2.12. */
function jobShape(job: JobRecord) {
  return {
    id: job.id,
    object: "fine_tuning.job",
    model: job.baseModel,
    created_at: seconds(job.createdAtMs),
    finished_at: job.finishedAtMs === null ? null : seconds(job.finishedAtMs),
    status: job.status,
    training_file: job.trainingFile,
    validation_file: job.validationFile,
    hyperparameters: job.hyperparameters,
    fine_tuned_model: job.fineTunedModel,
    estimated_finish: job.estimatedFinishMs === null ? null : seconds(job.estimatedFinishMs),
    error: job.error,
    trained_tokens: job.trainedTokens,
    organization_id: job.organizationId,
    result_files: job.resultFile === null ? [] : [job.resultFile],
    seed: job.seed,
    suffix: job.suffix,
    metadata: job.metadata,
  };
}

function eventShape(event: JobEvent) {
  return {
    object: "fine_tuning.job.event",
    id: event.id,
    created_at: seconds(event.createdAtMs),
    level: event.level,
    message: event.message,
    type: event.type,
    data: event.data,
  };
}

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
