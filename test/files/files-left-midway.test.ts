import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { metric } from "../crash/gateway-process.ts";
import {
  type FilesGateway,
  fileBooks,
  formOf,
  getContent,
  startFilesGateway,
  upload,
  uploaded,
} from "../support/files-gateway.ts";
import { until } from "../support/until.ts";

const DOWNLOADS = 100;
/** More than there are places for uploads, which none may keep. */
const UPLOADS = 80;
const openFiles = (): number => readdirSync("/proc/self/fd").length;

/** Before it is asked, while it is, and in its middle. */
async function leave(leaving: AbortController, n: number): Promise<void> {
  const leaveAtMs = performance.now() + (n % 30) / 5;
  while (performance.now() < leaveAtMs) await new Promise(setImmediate);
  leaving.abort();
}

const onlyThisRuns = (gateway: FilesGateway) =>
  until("no request runs but the one that asks", async () => {
    return (await metric(gateway.baseUrl, "gateway_requests_in_flight")) === 1;
  });

test.skipIf(process.platform !== "linux")(
  "downloads that are left at any moment leave neither an open file nor a running request",
  async () => {
    const gateway = await startFilesGateway();
    const { id } = await uploaded(gateway, "user_data", new Uint8Array(8_000_000));
    await (await getContent(gateway, id)).bytes();
    const before = openFiles();
    for (let n = 0; n < DOWNLOADS; n++) {
      const leaving = new AbortController();
      const download = fetch(`${gateway.baseUrl}/v1/files/${id}/content`, {
        headers: { authorization: `Bearer ${gateway.secretKey}` },
        signal: leaving.signal,
      }).then((response) => response.bytes());
      download.catch(() => {});
      await leave(leaving, n);
      await download.catch(() => {});
    }
    await onlyThisRuns(gateway);
    await until("no file is open", () => openFiles() <= before + 2);
    Bun.gc(true);
    expect((await getContent(gateway, id)).status).toBe(200);
    await gateway.stop();
  },
);

test("uploads that are left at any moment leave neither rows nor bytes nor a running request", async () => {
  const gateway = await startFilesGateway();
  const content = new Uint8Array(3_000_000);
  for (let n = 0; n < UPLOADS; n++) {
    const leaving = new AbortController();
    const form = formOf(["purpose", "user_data"], ["file", new File([content], "a")]);
    const sending = fetch(`${gateway.baseUrl}/v1/files`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.secretKey}` },
      body: form,
      signal: leaving.signal,
    });
    sending.catch(() => {});
    await leave(leaving, n);
    await sending.catch(() => {});
  }
  await onlyThisRuns(gateway);
  // Some were whole before they were left; those are files.
  const books = await until("the rest is gone", async () => {
    const now = await fileBooks(gateway);
    return now.uploads === 0 && now.removals === 0 && now;
  });
  expect(books).toMatchObject({ used: books.files! * content.byteLength, reserved: 0 });
  expect(await gateway.countStored()).toBe(books.files!);
  expect((await upload(gateway, "user_data", "x")).status).toBe(200);
  await gateway.stop();
});
