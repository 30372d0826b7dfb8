import { expect, test } from "bun:test";
import { type FormReceiver, oneFileLimits, readForm } from "../../src/http/multipart.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";

const PARTS = 100_000;
/** Far more than come in one slice of a body, and far fewer than the form has. */
const MAX_PARSED_PARTS = 1_000;
const pace = { clock: systemClock, minBytesPerSecond: 1_000 };

/** Its body comes in one piece. */
function form(parts: readonly string[]): Request {
  const text = `${parts.map((part) => `--b\r\n${part}\r\n`).join("")}--b--\r\n`;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(text));
      controller.close();
    },
  });
  return new Request("http://localhost/v1/files", {
    method: "POST",
    headers: { "content-type": "multipart/form-data; boundary=b" },
    body,
  });
}

const field = (name: string) => `Content-Disposition: form-data; name="${name}"\r\n\r\nx`;
const file = 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ntext';

test("a form whose first part is refused is not parsed to its end", async () => {
  let parsed = 0;
  const receiver: FormReceiver = {
    field() {
      parsed++;
      throw new GatewayError("invalid_body", "It is unknown.");
    },
    file: () => Promise.reject(new Error("there is no file")),
  };
  const parts = Array.from({ length: PARTS }, (_, at) => field(`f${at}`));
  const limits = { ...oneFileLimits(1_000_000), fields: PARTS, otherBytes: 100_000_000 };
  const reading = readForm(form(parts), receiver, { ...limits, ...pace });
  await expect(reading).rejects.toThrow("It is unknown.");
  expect(parsed).toBeLessThan(MAX_PARSED_PARTS);
});

test("a form has no more parts than its route takes, whether or not they have names", async () => {
  const receiver: FormReceiver = {
    field() {},
    file: async () => ({ write: async () => {}, end: async () => {} }),
  };
  const limits = { ...oneFileLimits(1_000_000), ...pace };
  const most = limits.fields + limits.files;
  const nameless = "Content-Type: text/plain\r\n\r\nx";
  const parts = (count: number) => [...Array.from({ length: count }, () => nameless), file];
  await readForm(form(parts(most - 1)), receiver, limits);
  await expect(readForm(form(parts(most)), receiver, limits)).rejects.toThrow("too many parts");
});
