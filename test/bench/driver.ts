import type { Child } from "./children.ts";
import type { AbortResult, AbortSpec, LoadResult, LoadSpec } from "./load-protocol.ts";
import { MESSAGES_PATH, messagesRequest, verifyMessages } from "./messages-wire.ts";
import { readUsage, resetPeak } from "./process-usage.ts";
import { CHAT_PATH, MODELS, type ModelName, requestBody, verifyAnswer } from "./wire.ts";

/** One of the two that are compared. */
export interface Target {
  readonly name: "gateway" | "bare" | "go";
  readonly pid: number;
  readonly port: number;
  readonly key: string;
}

export interface Workload {
  readonly model: ModelName;
  readonly isStream: boolean;
}

export interface Measurement {
  /** Requests, or events of live streams. */
  readonly ratePerSecond: number;
  /** From request to whole answer; of live streams to the first event. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** An event's way from the upstream's socket to the client, of live streams; else NaN. */
  readonly eventP50Ms: number;
  readonly eventP99Ms: number;
  /** Of the target's process alone; a request's, or an event's of live streams. */
  readonly cpuMicros: number;
  /** Before the run, while nothing was going on. */
  readonly quietMb: number;
  /** At the end of the run. */
  readonly residentMb: number;
  readonly peakMb: number;
  /** How many processors each kept busy; `rest` is the database and every other process. */
  readonly targetCores: number;
  readonly loadCores: number;
  readonly upstreamCores: number;
  readonly restCores: number;
}

export interface Run {
  readonly target: Target;
  readonly workload: Workload;
  readonly connections: number;
  readonly warmupMs: number;
  readonly measureMs: number;
  /** Instead of the target's one key. */
  readonly keys?: readonly string[];
  /** The warm-up goes on for as many at least. */
  readonly warmupRequests?: number;
  /** Connections send their first request spread over this time; none: at once. */
  readonly spreadMs?: number;
  /** Mean of the random time from an answer to the next request of its connection; undefined: 0. */
  readonly meanThinkMs?: number | undefined;
}

interface ExpectedBody {
  readonly bytes: number;
  readonly ending: string;
}

const ENDING_BYTES = 14;

/** Drives the targets through the load generator, and counts what the gateway has answered. */
export class Driver {
  readonly #load: Child;
  readonly #upstreamPid: number;
  readonly #expected = new Map<string, ExpectedBody>();
  #gatewayAnswers = 0;
  #abortedStreams = 0;
  #wrong = 0;
  #firstWrong: string | undefined;

  constructor(load: Child, upstreamPid: number) {
    this.#load = load;
    this.#upstreamPid = upstreamPid;
  }

  get upstreamPid(): number {
    return this.#upstreamPid;
  }

  /** Right answers of the gateway so far. */
  get gatewayAnswers(): number {
    return this.#gatewayAnswers;
  }

  get abortedStreams(): number {
    return this.#abortedStreams;
  }

  /** Answers of both targets that were not what they should be. */
  get wrong(): number {
    return this.#wrong;
  }

  get firstWrong(): string | undefined {
    return this.#firstWrong;
  }

  async run(run: Run): Promise<Measurement & { readonly warmedUpMs: number }> {
    const { target, workload } = run;
    const expected = await this.#expectedOf(target, workload);
    const quietMb = readUsage(target.pid).residentMb;
    resetPeak(target.pid);
    const isTimed = workload.model === "live" || workload.model === "messagesLive";
    const result = await this.#order<LoadResult>({
      kind: "load",
      port: target.port,
      keys: run.keys ?? [target.key],
      ...requestOf(target, workload),
      connections: run.connections,
      spreadMs: run.spreadMs ?? 0,
      meanThinkMs: run.meanThinkMs ?? 0,
      warmupMs: run.warmupMs,
      warmupRequests: run.warmupRequests ?? 0,
      measureMs: run.measureMs,
      expectedBodyBytes: expected.bytes,
      expectedEnding: expected.ending,
      isTimed,
      watchedPids: [target.pid, this.#upstreamPid],
    });
    const { residentMb, peakMb } = readUsage(target.pid);
    this.#note(target, result);
    if (target.name === "gateway") this.#gatewayAnswers += result.answered;
    const memory = { quietMb, residentMb, peakMb };
    return { ...measurementOf(result), ...memory, warmedUpMs: result.warmedUpMs };
  }

  async abort(target: Target, streams: number, connections: number): Promise<AbortResult> {
    const result = await this.#order<AbortResult>({
      kind: "abort",
      port: target.port,
      keys: [target.key],
      ...requestOf(target, { model: "endless", isStream: true }),
      connections,
      streams,
    });
    this.#note(target, result);
    this.#abortedStreams += result.aborted;
    return result;
  }

  async #order<Result>(spec: LoadSpec | AbortSpec): Promise<Result> {
    this.#load.send(spec);
    const answer = (await this.#load.next()) as Result | { error: string };
    if (typeof answer === "object" && answer !== null && "error" in answer) {
      throw new Error(`the load generator failed: ${answer.error}`);
    }
    return answer as Result;
  }

  #note(target: Target, { wrong, firstWrong }: { wrong: number; firstWrong: string | undefined }) {
    this.#wrong += wrong;
    if (firstWrong !== undefined) this.#firstWrong ??= `${target.name}: ${firstWrong}`;
  }

  /** One answer is read in full; those of a load are compared with its length and end. */
  async #expectedOf(target: Target, workload: Workload): Promise<ExpectedBody> {
    const { model, isStream } = workload;
    const id = `${target.name} ${model} ${isStream}`;
    const known = this.#expected.get(id);
    if (known !== undefined) return known;
    const { path, body } = requestOf(target, workload);
    const answer = await fetch(`http://127.0.0.1:${target.port}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${target.key}` },
      body,
    });
    const bytes = await answer.bytes();
    const text = new TextDecoder().decode(bytes);
    if (!answer.ok) throw new Error(`${target.name} answered ${answer.status}: ${text}`);
    if (path === MESSAGES_PATH) verifyMessages(text, isStream);
    else verifyAnswer(text, isStream);
    if (target.name === "gateway") this.#gatewayAnswers++;
    const expected = { bytes: bytes.length, ending: text.slice(-ENDING_BYTES) };
    this.#expected.set(id, expected);
    return expected;
  }
}

/** Whether the upstream serves a model in Anthropic's wire. */
export function isOfMessages(model: ModelName): boolean {
  return model === "messages" || model === "messagesLive";
}

/** The gateway is asked for chats. What is no chat at the upstream the bare proxy is asked for as it is there. */
function requestOf({ name }: Target, { model, isStream }: Workload) {
  return isOfMessages(model) && name !== "gateway"
    ? { path: MESSAGES_PATH, body: messagesRequest(MODELS[model], isStream) }
    : { path: CHAT_PATH, body: requestBody(model, isStream) };
}

function measurementOf(result: LoadResult): Omit<Measurement, "quietMb" | "residentMb" | "peakMb"> {
  const seconds = result.measuredMs / 1_000;
  const [targetCpu = Number.NaN, upstreamCpu = Number.NaN] = result.cpuSeconds;
  const machineCpu = result.machineCpuSeconds ?? Number.NaN;
  return {
    ratePerSecond: result.measured / seconds,
    p50Ms: result.p50Ms,
    p99Ms: result.p99Ms,
    // JSON, in which the load generator answers, makes null of NaN.
    eventP50Ms: result.eventP50Ms ?? Number.NaN,
    eventP99Ms: result.eventP99Ms ?? Number.NaN,
    cpuMicros: (targetCpu / result.measured) * 1e6,
    targetCores: targetCpu / seconds,
    loadCores: result.ownCpuSeconds / seconds,
    upstreamCores: upstreamCpu / seconds,
    restCores: Math.max(0, machineCpu - targetCpu - upstreamCpu - result.ownCpuSeconds) / seconds,
  };
}
