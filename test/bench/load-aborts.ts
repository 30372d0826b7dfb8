import { type AbortResult, type AbortSpec, requestBytes } from "./load-protocol.ts";

const TOKEN = '"content":" tok"';
const STATUS_OK = "HTTP/1.1 200";

/** Opens streams, and goes away from each one without a word once the first tokens have come. */
export async function runAborts(spec: AbortSpec): Promise<AbortResult> {
  const [request = Buffer.alloc(0)] = requestBytes(spec);
  const startedMs = performance.now();
  let started = 0;
  let aborted = 0;
  let wrong = 0;
  let firstWrong: string | undefined;
  const next = async (): Promise<void> => {
    while (started < spec.streams) {
      started++;
      const failure = await openAndLeave(spec.port, request);
      if (failure === undefined) aborted++;
      else {
        wrong++;
        firstWrong ??= failure;
      }
    }
  };
  await Promise.all(Array.from({ length: spec.connections }, next));
  return { aborted, wrong, firstWrong, tookMs: performance.now() - startedMs };
}

/** What went wrong, undefined where the stream was left in its middle. */
function openAndLeave(port: number, request: Buffer): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  let received = "";
  Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: (socket) => void socket.write(request),
      data(socket, bytes) {
        received += bytes.toString("latin1");
        const isOk = received.startsWith(STATUS_OK);
        if (isOk && !received.includes(TOKEN)) return;
        resolve(isOk ? undefined : received.slice(0, 500));
        socket.terminate();
      },
      close: () => resolve(`closed by the other side after ${received.slice(0, 500)}`),
      error: (_, error) => resolve(String(error)),
    },
  }).catch((error: unknown) => resolve(String(error)));
  return promise;
}
