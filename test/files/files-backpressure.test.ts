import { expect, test } from "bun:test";
import { connect } from "node:net";
import { startFilesGateway, uploaded } from "../support/files-gateway.ts";
import { sendStreamed, streamedForm } from "../support/streamed-form.ts";
import { until } from "../support/until.ts";

const MEGABYTE = 1024 * 1024;
const TOTAL_BYTES = 96 * MEGABYTE;
/** Buffers of both processes and of the kernel between them. */
const MOST_ON_THE_WAY_BYTES = 64 * MEGABYTE;
const STEADY_ROUND_TRIPS = 40;

/** Waits until a number stays as it is while the gateway answers many other requests. */
async function steady(baseUrl: string, read: () => number): Promise<number> {
  return until(
    "it stands still",
    async () => {
      const before = read();
      for (let n = 0; n < STEADY_ROUND_TRIPS; n++) await (await fetch(`${baseUrl}/healthz`)).text();
      return before > 0 && read() === before ? before : undefined;
    },
    20_000,
  );
}

test("a store that is slow holds the upload back, and it goes on with it", async () => {
  const gateway = await startFilesGateway("s3");
  const gate = Promise.withResolvers<undefined>();
  gateway.s3!.faults.push({ matches: (method) => method === "PUT", answer: () => gate.promise });
  let sentBytes = 0;
  const form = streamedForm({
    purpose: "user_data",
    fileBytes: TOTAL_BYTES,
    pattern: new Uint8Array(MEGABYTE),
    before(sent) {
      sentBytes = sent;
    },
  });
  const answer = sendStreamed(gateway.baseUrl, gateway.secretKey, form);
  expect(await steady(gateway.baseUrl, () => sentBytes)).toBeLessThan(MOST_ON_THE_WAY_BYTES);
  gateway.s3!.faults.splice(0);
  gate.resolve(undefined);
  const body = (await (await answer).json()) as { bytes: number };
  expect(body.bytes).toBe(TOTAL_BYTES);
  await gateway.stop();
}, 60_000);

test("a client that does not read holds the download back", async () => {
  const gateway = await startFilesGateway("s3");
  const { id } = await uploaded(gateway, "user_data", new Uint8Array(TOTAL_BYTES));
  const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1");
  socket.pause();
  socket.write(
    `GET /v1/files/${id}/content HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${gateway.secretKey}\r\n\r\n`,
  );
  const sent = () => gateway.s3!.bucket.sentBytes;
  expect(await steady(gateway.baseUrl, sent)).toBeLessThan(MOST_ON_THE_WAY_BYTES);
  socket.destroy();
  await gateway.stop();
}, 60_000);
