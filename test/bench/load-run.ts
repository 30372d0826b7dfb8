import { EventClock } from "./event-clock.ts";
import { type LoadResult, type LoadSpec, requestBytes } from "./load-protocol.ts";
import { readMachineCpuSeconds, readUsage } from "./process-usage.ts";
import { ResponseReader } from "./response-reader.ts";

const WARMUP_CHECK_MS = 20;
/** A run whose last answers do not come ends without them. */
const LAST_ANSWERS_MS = 30_000;

/** Drives one target: each connection sends its next request after the answer to the last and its think time. */
export class LoadRun {
  readonly #spec: LoadSpec;
  readonly #requests: readonly Buffer[];
  /** From request to whole answer, or to the first event of timed ones. */
  readonly #latenciesMs: number[] = [];
  readonly #eventDelaysMs: number[] = [];
  #nextRequest = 0;
  #answered = 0;
  #wrong = 0;
  #firstWrong: string | undefined;
  #isMeasuring = false;
  #isEnding = false;
  #open = 0;
  readonly #ended = Promise.withResolvers<void>();

  constructor(spec: LoadSpec) {
    this.#spec = spec;
    this.#requests = requestBytes(spec);
  }

  async run(): Promise<LoadResult> {
    const spec = this.#spec;
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: spec.connections }, (_, index) => this.#connect(index)));
    await this.#warmUp(startedMs);
    const warmedUpMs = performance.now() - startedMs;
    const before = takeSample(spec.watchedPids);
    this.#isMeasuring = true;
    await Promise.race([Bun.sleep(spec.measureMs), this.#ended.promise]);
    this.#isMeasuring = false;
    const after = takeSample(spec.watchedPids);
    this.#isEnding = true;
    await Promise.race([this.#ended.promise, Bun.sleep(LAST_ANSWERS_MS)]);
    const latencies = Float64Array.from(this.#latenciesMs).sort();
    const delays = Float64Array.from(this.#eventDelaysMs).sort();
    return {
      answered: this.#answered,
      wrong: this.#wrong,
      firstWrong: this.#firstWrong,
      measured: spec.isTimed ? delays.length : latencies.length,
      measuredMs: after.atMs - before.atMs,
      warmedUpMs,
      p50Ms: percentile(latencies, 0.5),
      p99Ms: percentile(latencies, 0.99),
      eventP50Ms: percentile(delays, 0.5),
      eventP99Ms: percentile(delays, 0.99),
      cpuSeconds: after.cpuSeconds.map((seconds, index) => seconds - before.cpuSeconds[index]!),
      ownCpuSeconds: after.ownCpuSeconds - before.ownCpuSeconds,
      machineCpuSeconds:
        after.machineCpuSeconds === undefined || before.machineCpuSeconds === undefined
          ? undefined
          : after.machineCpuSeconds - before.machineCpuSeconds,
    };
  }

  async #warmUp(startedMs: number): Promise<void> {
    const { warmupMs, warmupRequests } = this.#spec;
    const isWarm = () =>
      performance.now() - startedMs >= warmupMs && this.#answered >= warmupRequests;
    while (!isWarm() && this.#open > 0) await Bun.sleep(WARMUP_CHECK_MS);
  }

  async #connect(index: number): Promise<void> {
    const { port, connections, spreadMs, meanThinkMs } = this.#spec;
    const connection = new LoadConnection(this.#spec, {
      request: () => this.#requests[this.#nextRequest++ % this.#requests.length]!,
      onLatency: (ms) => this.#isMeasuring && this.#latenciesMs.push(ms),
      onEvent: (ms) => this.#isMeasuring && this.#eventDelaysMs.push(ms),
      onWrong: (what) => this.#note(what),
    });
    await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        open: (socket) => {
          this.#open++;
          socket.setNoDelay(true);
          setTimeout(() => connection.send(socket), (spreadMs * index) / connections);
        },
        data: (socket, bytes) => {
          const isRight = connection.read(bytes);
          if (isRight === undefined) return;
          if (isRight) this.#answered++;
          if (this.#isEnding) socket.end();
          // Answers that one commit releases together would else be followed by requests together.
          else if (meanThinkMs > 0)
            setTimeout(() => connection.send(socket), Math.random() * 2 * meanThinkMs);
          else connection.send(socket);
        },
        close: () => {
          if (!this.#isEnding) this.#note("the connection was closed");
          if (--this.#open === 0) this.#ended.resolve();
        },
        error: (_, error) => this.#note(String(error)),
        connectError: (_, error) => this.#note(String(error)),
      },
    });
  }

  #note(what: string): void {
    this.#wrong++;
    this.#firstWrong ??= what;
  }
}

interface ConnectionHandlers {
  request(): Buffer;
  onLatency(ms: number): void;
  onEvent(delayMs: number): void;
  onWrong(what: string): void;
}

/** One connection's requests and answers, one after the other. */
class LoadConnection {
  readonly #reader: ResponseReader;
  readonly #clock: EventClock | undefined;
  readonly #handlers: ConnectionHandlers;
  #sentMs = 0;
  #isFirstEvent = true;

  constructor(spec: LoadSpec, handlers: ConnectionHandlers) {
    this.#handlers = handlers;
    this.#reader = new ResponseReader({
      bodyBytes: spec.expectedBodyBytes,
      ending: Buffer.from(spec.expectedEnding),
    });
    if (spec.isTimed) this.#clock = new EventClock((sentAtMs) => this.#onEvent(sentAtMs));
  }

  send(socket: Bun.Socket): void {
    this.#sentMs = performance.now();
    this.#isFirstEvent = true;
    const request = this.#handlers.request();
    if (socket.readyState !== 1 || socket.write(request) === request.length) return;
    this.#handlers.onWrong("a request did not fit into the socket");
    socket.terminate();
  }

  /** Whether the answer is right, once it is complete. */
  read(bytes: Buffer): boolean | undefined {
    this.#clock?.push(bytes);
    if (!this.#reader.push(bytes)) return undefined;
    if (this.#clock === undefined) this.#handlers.onLatency(performance.now() - this.#sentMs);
    const { summary } = this.#reader;
    const isRight = this.#reader.take();
    if (!isRight) this.#handlers.onWrong(`${summary}: ${bytes.toString().slice(0, 500)}`);
    return isRight;
  }

  #onEvent(sentAtMs: number): void {
    const nowMs = performance.now();
    if (this.#isFirstEvent) this.#handlers.onLatency(nowMs - this.#sentMs);
    else this.#handlers.onEvent(performance.timeOrigin + nowMs - sentAtMs);
    this.#isFirstEvent = false;
  }
}

function percentile(sorted: Float64Array, share: number): number {
  return sorted[Math.floor(sorted.length * share)] ?? Number.NaN;
}

function takeSample(watchedPids: readonly number[]) {
  const { user, system } = process.cpuUsage();
  return {
    atMs: performance.now(),
    cpuSeconds: watchedPids.map((pid) => readUsage(pid).cpuSeconds),
    ownCpuSeconds: (user + system) / 1e6,
    machineCpuSeconds: readMachineCpuSeconds(),
  };
}
