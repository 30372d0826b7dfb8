import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { type FilesProcess, prepareFilesProcess } from "../support/files-process.ts";
import { sendStreamed, streamedForm } from "../support/streamed-form.ts";

/** GATEWAY_TEST_FILE_MEGABYTES=512 is the largest file there may be. */
const FILE_BYTES = Number(process.env.GATEWAY_TEST_FILE_MEGABYTES ?? 160) * 1024 * 1024;
/** Above what the idle process has, and less than the file. */
const MAX_GROWTH_BYTES = 120_000_000;
const SAMPLE_MS = 20;

const line = `${JSON.stringify({ messages: [{ role: "user", content: "grow ".repeat(200) }] })}\n`;
const LINES = Buffer.from(line.repeat(1_000));

/** Resident memory of a process by the kernel's account (proc(5)); undefined where there is none. */
async function residentBytes(pid: number): Promise<number | undefined> {
  const status = await Bun.file(`/proc/${pid}/status`)
    .text()
    .catch(() => "");
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(status);
  return match ? Number(match[1]) * 1_024 : undefined;
}

/** The largest memory of a process while something goes on. */
async function peakDuring<Result>(pid: number, work: Promise<Result>) {
  let peakBytes = 0;
  let isOver = false;
  const result = work.finally(() => {
    isOver = true;
  });
  result.catch(() => {});
  while (!isOver) {
    peakBytes = Math.max(peakBytes, (await residentBytes(pid)) ?? 0);
    await Bun.sleep(SAMPLE_MS);
  }
  return { result: await result, peakBytes };
}

describe.each(["disk", "s3"] as const)("a very large file on %s", (kind) => {
  let files: FilesProcess;
  beforeAll(async () => {
    files = await prepareFilesProcess(kind);
  });
  afterAll(() => files.stop());

  test.skipIf(process.platform !== "linux")(
    "goes up and comes down unchanged, checked line by line, without being held in memory",
    async () => {
      const { gateway, baseUrl } = await files.start();
      const headers = { authorization: `Bearer ${files.secretKey}` };
      await (await fetch(`${baseUrl}/v1/files`, { headers })).text();
      const idleBytes = (await residentBytes(gateway.pid))!;
      const fileBytes = Math.floor(FILE_BYTES / line.length) * line.length;
      const form = streamedForm({ purpose: "fine-tune", fileBytes, pattern: LINES });
      const up = await peakDuring(gateway.pid, sendStreamed(baseUrl, files.secretKey, form));
      expect(up.result.status).toBe(200);
      const { id, bytes } = (await up.result.json()) as { id: string; bytes: number };
      expect(bytes).toBe(fileBytes);
      gateway.signal("SIGTERM");
      await gateway.exited;
      // A new process, so that nothing of the upload counts.
      const second = await files.start();
      const url = `${second.baseUrl}/v1/files/${id}/content`;
      const down = await peakDuring(second.gateway.pid, hashOf(url, headers));
      expect(down.result).toBe(form.hash());
      const megabytes = (value: number) => Math.round(value / 1e6);
      console.log(
        `${megabytes(fileBytes)} MB on ${kind}: idle ${megabytes(idleBytes)} MB, up +${megabytes(up.peakBytes - idleBytes)} MB, down +${megabytes(down.peakBytes - idleBytes)} MB`,
      );
      expect(up.peakBytes - idleBytes).toBeLessThan(MAX_GROWTH_BYTES);
      expect(down.peakBytes - idleBytes).toBeLessThan(MAX_GROWTH_BYTES);
    },
    120_000,
  );
});

async function hashOf(url: string, headers: Record<string, string>): Promise<string> {
  const hash = createHash("sha256");
  const response = await fetch(url, { headers });
  expect(response.status).toBe(200);
  for await (const piece of response.body!) hash.update(piece);
  return hash.digest("hex");
}
