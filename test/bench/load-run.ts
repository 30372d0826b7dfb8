import { type LoadResult, type LoadSpec, requestBytes } from "./load-protocol.ts";
import { readMachineCpuSeconds, readUsage } from "./process-usage.ts";
import { ResponseReader } from "./response-reader.ts";
import { CHAT_PATH } from "./wire.ts";

const WARMUP_CHECK_MS = 20;
/** A run whose last answers do not come ends without them. */
const LAST_ANSWERS_MS = 30_000;

/** Drives one target: each connection sends its next request when it has the answer to the last. */
export class LoadRun {
  readonly #spec: LoadSpec;
  readonly #requests: readonly Buffer[];
  readonly #latenciesMs: number[] = [];
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
    this.#requests = requestBytes(spec, CHAT_PATH);
  }

  async run(): Promise<LoadResult> {
    const spec = this.#spec;
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: spec.connections }, () => this.#connect()));
    await this.#warmUp(startedMs);
    const warmedUpMs = performance.now() - startedMs;
    const before = takeSample(spec.watchedPids);
    this.#isMeasuring = true;
    await Promise.race([Bun.sleep(spec.measureMs), this.#ended.promise]);
    this.#isMeasuring = false;
    const after = takeSample(spec.watchedPids);
    this.#isEnding = true;
    await Promise.race([this.#ended.promise, Bun.sleep(LAST_ANSWERS_MS)]);
    const sorted = Float64Array.from(this.#latenciesMs).sort();
    return {
      answered: this.#answered,
      wrong: this.#wrong,
      firstWrong: this.#firstWrong,
      measured: sorted.length,
      measuredMs: after.atMs - before.atMs,
      warmedUpMs,
      p50Ms: sorted[Math.floor(sorted.length * 0.5)] ?? Number.NaN,
      p99Ms: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN,
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

  async #connect(): Promise<void> {
    const { port, expectedBodyBytes, expectedEnding } = this.#spec;
    const reader = new ResponseReader({
      bodyBytes: expectedBodyBytes,
      ending: Buffer.from(expectedEnding),
    });
    let sentMs = 0;
    const send = (socket: Bun.Socket) => {
      sentMs = performance.now();
      const request = this.#requests[this.#nextRequest++ % this.#requests.length]!;
      if (socket.write(request) !== request.length) {
        this.#note("a request did not fit into the socket");
        socket.terminate();
      }
    };
    await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        open: (socket) => {
          this.#open++;
          socket.setNoDelay(true);
          send(socket);
        },
        data: (socket, bytes) => {
          if (!reader.push(bytes)) return;
          if (this.#isMeasuring) this.#latenciesMs.push(performance.now() - sentMs);
          const { summary } = this.#wrong === 0 ? reader : { summary: "" };
          if (reader.take()) this.#answered++;
          else this.#note(`${summary}: ${bytes.toString().slice(0, 500)}`);
          if (this.#isEnding) socket.end();
          else send(socket);
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

function takeSample(watchedPids: readonly number[]) {
  const { user, system } = process.cpuUsage();
  return {
    atMs: performance.now(),
    cpuSeconds: watchedPids.map((pid) => readUsage(pid).cpuSeconds),
    ownCpuSeconds: (user + system) / 1e6,
    machineCpuSeconds: readMachineCpuSeconds(),
  };
}
