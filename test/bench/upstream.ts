import { readFileSync } from "node:fs";
import { MESSAGES_PATH, messageEvents, wholeMessage } from "./messages-wire.ts";
import { RequestReader } from "./request-reader.ts";
import { UPSTREAM_CERTIFICATE_PATH, UPSTREAM_KEY_PATH } from "./upstream-address.ts";
import {
  completion,
  DELAY_MS,
  LIVE_INTERVAL_MS,
  MODELS,
  OPENING_EVENTS,
  streamEvents,
  TIME_LENGTH,
  TIME_MARK,
  timeText,
} from "./wire.ts";

/*
 * The provider, a process of its own that speaks https. It writes to raw TLS sockets bytes that were
 * encoded at the start, so that it takes as little as possible of the machine that the gateway and the
 * bare proxy share with it.
 */

const ENDLESS_INTERVAL_MS = 50;
const OPEN_STREAMS_PATH = "/open-streams";

const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: ";
const STREAM_HEAD = `${HEAD}text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n`;

interface Answers {
  readonly completion: Buffer;
  /** By whether usage was asked. */
  readonly streams: readonly [Buffer[], Buffer[]];
}

function encodeAnswers(model: string): Answers {
  const stream = (includesUsage: boolean) => streamParts(streamEvents(model, includesUsage));
  return { completion: jsonAnswer(completion(model)), streams: [stream(false), stream(true)] };
}

/** Head, then one HTTP chunk for each event, then the end. */
function streamParts(events: readonly string[]): Buffer[] {
  return [Buffer.from(STREAM_HEAD), ...events.map(httpChunk), Buffer.from("0\r\n\r\n")];
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
const delayed = encodeAnswers(MODELS.delayed);
const live = encodeAnswers(MODELS.live);
const endless = encodeAnswers(MODELS.endless);
const message = {
  whole: jsonAnswer(wholeMessage(MODELS.messages)),
  stream: Buffer.concat(streamParts(messageEvents(MODELS.messages))),
  live: streamParts(messageEvents(MODELS.messagesLive)),
};
const bursts = instant.streams.map((parts) => Buffer.concat(parts)) as [Buffer, Buffer];

interface Client {
  readonly reader: RequestReader;
  /** What the kernel did not take yet. */
  unsent: Buffer | undefined;
  /** Of the endless or live stream that runs. */
  timer: Timer | undefined;
}
type Socket = Bun.Socket<Client>;

let openStreams = 0;

function answer(socket: Socket, path: string, body: Buffer): void {
  const wantsUsage = body.indexOf('"include_usage":true') < 0 ? 0 : 1;
  if (path === OPEN_STREAMS_PATH) send(socket, jsonAnswer(JSON.stringify({ openStreams })));
  else if (path === MESSAGES_PATH) answerMessages(socket, body);
  else if (body.indexOf(MODELS.delayed) >= 0)
    setTimeout(send, DELAY_MS, socket, delayed.completion);
  else if (body.indexOf('"stream":true') < 0) send(socket, instant.completion);
  else if (body.indexOf(MODELS.live) >= 0) writeLive(socket, live.streams[wantsUsage]);
  else if (body.indexOf(MODELS.endless) >= 0) writeEndless(socket, endless.streams[wantsUsage]);
  else send(socket, bursts[wantsUsage]);
}

function answerMessages(socket: Socket, body: Buffer): void {
  if (body.indexOf('"stream":true') < 0) send(socket, message.whole);
  else if (body.indexOf(MODELS.messagesLive) >= 0) writeLive(socket, message.live);
  else send(socket, message.stream);
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

/** The head and the first token at once, the others one by one, what follows the last token with it. */
function writeLive(socket: Socket, parts: readonly Buffer[]): void {
  const lastToken = parts.findLastIndex((part) => part.indexOf(TIME_MARK) >= 0);
  const firstToken = parts.findIndex((part) => part.indexOf(TIME_MARK) >= 0);
  let next = firstToken + 1;
  openStreams++;
  send(socket, Buffer.concat([...parts.slice(0, firstToken), stamped(parts[firstToken]!)]));
  socket.data.timer = setInterval(() => {
    const event = stamped(parts[next]!);
    if (next < lastToken) {
      next++;
      return send(socket, event);
    }
    send(socket, Buffer.concat([event, ...parts.slice(lastToken + 1)]));
    forget(socket);
  }, LIVE_INTERVAL_MS);
}

function stamped(event: Buffer): Buffer {
  const at = event.indexOf(TIME_MARK) + TIME_MARK.length;
  const copy = Buffer.from(event);
  copy.write(timeText(), at, TIME_LENGTH, "latin1");
  return copy;
}

function writeEndless(socket: Socket, parts: readonly Buffer[]): void {
  openStreams++;
  send(socket, Buffer.concat(parts.slice(0, 1 + OPENING_EVENTS)));
  socket.data.timer = setInterval(() => send(socket, parts[OPENING_EVENTS]!), ENDLESS_INTERVAL_MS);
}

/** A connection whose handshake fails closes without having opened: it has no data. */
function forget({ data }: { readonly data: Client | undefined }): void {
  if (data?.timer === undefined) return;
  clearInterval(data.timer);
  data.timer = undefined;
  openStreams--;
}

const server = Bun.listen<Client>({
  hostname: "127.0.0.1",
  port: 0,
  tls: { key: readFileSync(UPSTREAM_KEY_PATH), cert: readFileSync(UPSTREAM_CERTIFICATE_PATH) },
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
