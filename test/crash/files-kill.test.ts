import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type FilesProcess, prepareFilesProcess } from "../support/files-process.ts";
import { sendStreamed, streamedForm } from "../support/streamed-form.ts";
import { until } from "../support/until.ts";

const MEGABYTE = 1024 * 1024;
const PATIENCE_MS = 20_000;

describe.each(["disk", "s3"] as const)("after kill -9 in the middle of uploads to %s", (kind) => {
  let process: FilesProcess;
  beforeAll(async () => {
    process = await prepareFilesProcess(kind);
  });
  afterAll(() => process.stop());

  test("the next start leaves neither bytes nor rows of them, and their room is free", async () => {
    const first = await process.start();
    const uploads = [1, 2, 3].map((n) => {
      const stopped = Promise.withResolvers<void>();
      const form = streamedForm({
        purpose: "user_data",
        fileBytes: 40 * MEGABYTE,
        pattern: new Uint8Array(MEGABYTE),
        before: (sent) => (sent >= (16 + n) * MEGABYTE ? stopped.promise : undefined),
      });
      const answer = sendStreamed(first.baseUrl, process.secretKey, form);
      return { gone: answer.catch(() => undefined), goOn: () => stopped.resolve() };
    });
    const count = async () => {
      const [row] = await process.sql<{ uploads: number; reserved: number; left: number }[]>`
        SELECT (SELECT count(*)::int FROM file_uploads) AS uploads,
          (SELECT coalesce(sum(reserved_bytes), 0)::float8 FROM file_usage) AS reserved,
          (SELECT count(*)::int FROM file_removals) + (SELECT count(*)::int FROM files) AS left`;
      return { ...row!, stored: await process.countStored() };
    };
    await until(
      "all are under way",
      async () => {
        const { uploads: rows, reserved, stored } = await count();
        return rows === 3 && reserved >= 3 * 16 * MEGABYTE && stored === 3;
      },
      PATIENCE_MS,
    );
    first.gateway.signal("SIGKILL");
    await first.gateway.exited;
    for (const { goOn } of uploads) goOn();
    await Promise.all(uploads.map(({ gone }) => gone));
    expect(await count()).toMatchObject({ uploads: 3, stored: 3 });
    await process.start();
    await until(
      "nothing is left",
      async () => Bun.deepEquals(await count(), { uploads: 0, reserved: 0, left: 0, stored: 0 }),
      PATIENCE_MS,
    );
  });
});
