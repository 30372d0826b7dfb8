import { createServer } from "node:net";
import { Redis } from "ioredis";

const START_TIMEOUT_MS = 20_000;

export async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no free port");
  return address.port;
}

export async function redisAnswers(url: string): Promise<boolean> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: 1_000,
    commandTimeout: 1_000,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  redis.on("error", () => {});
  try {
    await redis.connect();
    return (await redis.ping()) === "PONG";
  } catch {
    return false;
  } finally {
    redis.disconnect();
  }
}

/** A Redis of a test's own, which keeps nothing: it may be killed, stopped and started again, empty. */
export class RedisServer {
  readonly #binary: string;
  readonly #port: number;
  #child: Bun.Subprocess | undefined;

  private constructor(binary: string, port: number) {
    this.#binary = binary;
    this.#port = port;
  }

  static async start(binary: string): Promise<RedisServer> {
    const server = new RedisServer(binary, await findFreePort());
    await server.start();
    return server;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#port}`;
  }

  /** On the same port, empty. Throws where it does not start. */
  async start(): Promise<void> {
    const options = ["--bind", "127.0.0.1", "--port", String(this.#port), "--dir", "/"];
    const child = Bun.spawn([this.#binary, ...options, "--save", "", "--appendonly", "no"], {
      stdio: ["ignore", "ignore", "ignore"],
    });
    this.#child = child;
    process.once("exit", () => child.kill("SIGKILL"));
    const deadlineMs = performance.now() + START_TIMEOUT_MS;
    while (!(await redisAnswers(this.url))) {
      if (child.exitCode !== null || performance.now() > deadlineMs) {
        throw new Error(`${this.#binary} did not start on port ${this.#port}`);
      }
      await Bun.sleep(20);
    }
  }

  /** Ends it as a power failure would; also where it is paused. */
  async kill(): Promise<void> {
    this.#child?.kill("SIGKILL");
    await this.#child?.exited;
  }

  /** It accepts connections and answers nothing. */
  pause(): void {
    this.#child?.kill("SIGSTOP");
  }

  resume(): void {
    this.#child?.kill("SIGCONT");
  }
}
