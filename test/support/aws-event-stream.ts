import { crc32 } from "node:zlib";

/** Encodes messages of `application/vnd.amazon.eventstream`, as AWS's specification says. */

export interface MessageHeaders {
  readonly [name: string]: string;
}

const STRING_TYPE = 7;

export function encodedMessage(headers: MessageHeaders, payload: Uint8Array | string): Buffer {
  return framedMessage(Buffer.concat(Object.entries(headers).map(encodedHeader)), payload);
}

/** @param headers encoded already */
export function framedMessage(headers: Uint8Array, payload: Uint8Array | string): Buffer {
  const body = Buffer.from(payload as Uint8Array);
  const message = Buffer.alloc(16 + headers.length + body.length);
  message.writeUInt32BE(message.length, 0);
  message.writeUInt32BE(headers.length, 4);
  message.writeUInt32BE(crc32(message.subarray(0, 8)), 8);
  message.set(headers, 12);
  message.set(body, 12 + headers.length);
  message.writeUInt32BE(crc32(message.subarray(0, -4)), message.length - 4);
  return message;
}

function encodedHeader([name, value]: [string, string]): Buffer {
  const text = Buffer.from(value);
  const head = Buffer.alloc(4 + name.length);
  head.writeUInt8(name.length, 0);
  head.write(name, 1, "latin1");
  head.writeUInt8(STRING_TYPE, 1 + name.length);
  head.writeUInt16BE(text.length, 2 + name.length);
  return Buffer.concat([head, text]);
}

export function event(type: string, payload: unknown): Buffer {
  return encodedMessage(
    { ":event-type": type, ":content-type": "application/json", ":message-type": "event" },
    JSON.stringify(payload),
  );
}

/** Events of ConverseStream, each `{type: payload}`. */
export function events(...all: readonly object[]): Buffer {
  return Buffer.concat(
    all.flatMap((one) => Object.entries(one).map(([type, payload]) => event(type, payload))),
  );
}

export function exception(type: string, message: string): Buffer {
  return encodedMessage(
    { ":exception-type": type, ":content-type": "application/json", ":message-type": "exception" },
    JSON.stringify({ message }),
  );
}

/** What InvokeModelWithResponseStream makes of a model's own event. */
export function chunk(modelsEvent: unknown): Buffer {
  const text = typeof modelsEvent === "string" ? modelsEvent : JSON.stringify(modelsEvent);
  return event("chunk", { bytes: Buffer.from(text).toString("base64"), p: "abcdefgh" });
}
