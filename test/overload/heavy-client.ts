import { connect, type Socket } from "node:net";
import { constants, setPriority } from "node:os";

/**
 * A client of large requests in a process of its own, behind everything else on the machine's processors:
 * what it takes from the gateway is the gateway's own work. Sends what standard input describes, each
 * request again and again, until that ends; then prints how often each kind had which outcome.
 */
export interface HeavyLoad {
  readonly requests: readonly HeavyRequest[];
  /** Of all connections together, as a network would limit it; 0: as fast as the gateway takes it. */
  readonly bytesPerSecond: number;
}

export interface HeavyRequest {
  readonly kind: string;
  readonly url: string;
  readonly key: string;
  readonly contentType: string;
  readonly bodyPath: string;
  readonly atATime: number;
}

const PIECE_BYTES = 65_536;
const PACE_MS = 5;
const PAUSE_MS = 10;

/** Sends all of the body, as most clients do, though it may be refused before. Resolves with the outcome. */
function send(request: HeavyRequest, body: Buffer, bytesPerSecond: number): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { hostname, port, pathname } = new URL(request.url);
  const socket = connect(Number(port), hostname);
  let answer = "";
  let sentBytes = 0;
  let beganMs = 0;
  const end = () => {
    clearTimeout(timer);
    socket.destroy();
    resolve(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? "cut");
  };
  const write = () => {
    while (sentBytes < body.length) {
      const dueBytes = ((performance.now() - beganMs) / 1_000) * bytesPerSecond;
      if (bytesPerSecond > 0 && sentBytes > dueBytes) {
        timer = setTimeout(write, PACE_MS);
        return;
      }
      const piece = body.subarray(sentBytes, sentBytes + PIECE_BYTES);
      sentBytes += piece.length;
      if (!takes(socket, piece, write)) return;
    }
    if (answer.includes("\r\n\r\n")) end();
  };
  let timer: Timer | undefined;
  socket.on("connect", () => {
    beganMs = performance.now();
    socket.write(headOf(request, pathname, body.length));
    write();
  });
  socket.on("data", (bytes: Buffer) => {
    answer += bytes.toString("latin1");
    if (sentBytes === body.length && answer.includes("\r\n\r\n")) end();
  });
  socket.on("close", end);
  socket.on("error", end);
  return promise;
}

/** False where the socket is full: then `goOn` is called when it is not any more. */
function takes(socket: Socket, piece: Buffer, goOn: () => void): boolean {
  if (socket.destroyed) return false;
  if (socket.write(piece)) return true;
  socket.once("drain", goOn);
  return false;
}

function headOf({ key, contentType }: HeavyRequest, path: string, lengthBytes: number): string {
  return [
    `POST ${path} HTTP/1.1`,
    "host: localhost",
    `authorization: Bearer ${key}`,
    `content-type: ${contentType}`,
    `content-length: ${lengthBytes}`,
    "\r\n",
  ].join("\r\n");
}

async function run({ requests, bytesPerSecond }: HeavyLoad, isOver: () => boolean) {
  const outcomes: Record<string, number> = {};
  const connections = requests.reduce((sum, { atATime }) => sum + atATime, 0);
  const repeat = async (request: HeavyRequest, body: Buffer) => {
    while (!isOver()) {
      const outcome = `${request.kind} ${await send(request, body, bytesPerSecond / connections)}`;
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      await Bun.sleep(PAUSE_MS);
    }
  };
  const running = requests.map(async (request) => {
    const body = Buffer.from(await Bun.file(request.bodyPath).arrayBuffer());
    await Promise.all(Array.from({ length: request.atATime }, () => repeat(request, body)));
  });
  await Promise.all(running);
  return outcomes;
}

if (import.meta.main) {
  setPriority(constants.priority.PRIORITY_LOW);
  const lines = console[Symbol.asyncIterator]();
  const load = JSON.parse((await lines.next()).value as string) as HeavyLoad;
  let isOver = false;
  void lines.next().then(() => {
    isOver = true;
  });
  process.stdout.write(JSON.stringify(await run(load, () => isOver)));
}
