import { RequestReader } from "./request-reader.ts";
import { completion, MODELS, OPENING_EVENTS, streamEvents } from "./wire.ts";

/*
 * The instant upstream, a process of its own. It stands on raw sockets and answers with bytes that were
 * encoded at the start, so that it takes as little as possible of the machine that the gateway and the
 * bare proxy share with it.
 */

const ENDLESS_INTERVAL_MS = 50;
const OPEN_STREAMS_PATH = "/open-streams";

const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: ";
const STREAM_HEAD = `${HEAD}text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n`;

interface Answers {
  readonly completion: Buffer;
  /** By whether usage was asked: head, then one HTTP chunk for each event, then the end. */
  readonly streams: readonly [Buffer[], Buffer[]];
}

function encodeAnswers(model: string): Answers {
  const stream = (includesUsage: boolean) => [
    Buffer.from(STREAM_HEAD),
    ...streamEvents(model, includesUsage).map(httpChunk),
    Buffer.from("0\r\n\r\n"),
  ];
  return { completion: jsonAnswer(completion(model)), streams: [stream(false), stream(true)] };
}

function httpChunk(text: string): Buffer {
  return Buffer.from(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`);
}

function jsonAnswer(body: string): Buffer {
  return Buffer.from(
    `${HEAD}application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

const instant = encodeAnswers(MODELS.instant);
const spread = encodeAnswers(MODELS.spread);
const endless = encodeAnswers(MODELS.endless);
const bursts = instant.streams.map((parts) => Buffer.concat(parts)) as [Buffer, Buffer];

interface Client {
  readonly reader: RequestReader;
  /** What the kernel did not take yet. */
  unsent: Buffer | undefined;
  timer: Timer | undefined;
}
type Socket = Bun.Socket<Client>;

let openStreams = 0;

function answer(socket: Socket, path: string, body: Buffer): void {
  const wish = body.indexOf('"include_usage":true') < 0 ? 0 : 1;
  if (path === OPEN_STREAMS_PATH) send(socket, jsonAnswer(JSON.stringify({ openStreams })));
  else if (body.indexOf('"stream":true') < 0) send(socket, instant.completion);
  else if (body.indexOf(MODELS.spread) >= 0) writeSpread(socket, spread.streams[wish], 0);
  else if (body.indexOf(MODELS.endless) >= 0) writeEndless(socket, endless.streams[wish]);
  else send(socket, bursts[wish]);
}

function send(socket: Socket, bytes: Buffer): void {
  const { data } = socket;
  if (data.unsent !== undefined) {
    data.unsent = Buffer.concat([data.unsent, bytes]);
    return;
  }
  const written = Math.max(0, socket.write(bytes));
  if (written < bytes.length) data.unsent = bytes.subarray(written);
}

function writeSpread(socket: Socket, parts: readonly Buffer[], index: number): void {
  if (socket.readyState !== 1) return;
  send(socket, parts[index]!);
  if (index + 1 < parts.length) setImmediate(writeSpread, socket, parts, index + 1);
}

function writeEndless(socket: Socket, parts: readonly Buffer[]): void {
  openStreams++;
  send(socket, Buffer.concat(parts.slice(0, 1 + OPENING_EVENTS)));
  socket.data.timer = setInterval(() => send(socket, parts[OPENING_EVENTS]!), ENDLESS_INTERVAL_MS);
}

function forget({ data }: Socket): void {
  if (data.timer === undefined) return;
  clearInterval(data.timer);
  data.timer = undefined;
  openStreams--;
}

const server = Bun.listen<Client>({
  hostname: "127.0.0.1",
  port: 0,
  socket: {
    open(socket) {
      const reader = new RequestReader((path, body) => answer(socket, path, body));
      socket.data = { reader, unsent: undefined, timer: undefined };
      socket.setNoDelay(true);
    },
    data: (socket, bytes) => socket.data.reader.push(bytes),
    drain(socket) {
      const { unsent } = socket.data;
      socket.data.unsent = undefined;
      if (unsent !== undefined) send(socket, unsent);
    },
    close: forget,
    error: forget,
  },
});
process.on("disconnect", () => process.exit(0));
process.send?.({ port: server.port });
