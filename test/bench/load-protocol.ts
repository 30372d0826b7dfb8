/** The messages between the benchmark and its load generator. */

interface Target {
  readonly port: number;
  readonly path: string;
  /** Requests go around them in turn. */
  readonly keys: readonly string[];
  readonly body: string;
}

export interface LoadSpec extends Target {
  readonly kind: "load";
  readonly connections: number;
  /** Connections send their first request spread over this time, so that they do not answer in step. */
  readonly spreadMs: number;
  /** Mean of the time from an answer to the next request of its connection: uniform, from 0 to twice the mean. */
  readonly meanThinkMs: number;
  /** The warm-up ends when both are reached. */
  readonly warmupMs: number;
  readonly warmupRequests: number;
  readonly measureMs: number;
  readonly expectedBodyBytes: number;
  readonly expectedEnding: string;
  /** True where the events of the answers hold the time of their sending. */
  readonly isTimed: boolean;
  /** Processes whose CPU time is taken at the beginning and the end of the measured time. */
  readonly watchedPids: readonly number[];
}

export interface LoadResult {
  /** Right answers, those before and after the measured time included. */
  readonly answered: number;
  readonly wrong: number;
  readonly firstWrong: string | undefined;
  /** In the measured time: answers, or the events of timed ones. */
  readonly measured: number;
  readonly measuredMs: number;
  readonly warmedUpMs: number;
  /** From request to whole answer; of timed answers from request to the first event. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** From the upstream's sending of an event to its arrival, first events left out; null where not timed. */
  readonly eventP50Ms: number | null;
  readonly eventP99Ms: number | null;
  /** Of the watched processes, in their order. */
  readonly cpuSeconds: readonly number[];
  readonly ownCpuSeconds: number;
  readonly machineCpuSeconds: number | undefined;
}

export interface AbortSpec extends Target {
  readonly kind: "abort";
  readonly connections: number;
  readonly streams: number;
}

export interface AbortResult {
  readonly aborted: number;
  readonly wrong: number;
  readonly firstWrong: string | undefined;
  readonly tookMs: number;
}

export function requestBytes(target: Target): Buffer[] {
  return target.keys.map((key) =>
    Buffer.from(
      `POST ${target.path} HTTP/1.1\r\nHost: 127.0.0.1:${target.port}\r\nContent-Type: application/json\r\n` +
        `Authorization: Bearer ${key}\r\nContent-Length: ${Buffer.byteLength(target.body)}\r\n\r\n${target.body}`,
    ),
  );
}
