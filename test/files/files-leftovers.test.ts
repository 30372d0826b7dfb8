import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { abandonDeadUploads } from "../../db/queries/file-uploads.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  fileBooks,
  getContent,
  startFilesGateway,
  upload,
  uploaded,
} from "../support/files-gateway.ts";
import { image } from "../support/image-heads.ts";
import { sendStreamed, streamedForm } from "../support/streamed-form.ts";
import { until } from "../support/until.ts";

const MEGABYTE = 1024 * 1024;
const NOTHING = { files: 0, uploads: 0, removals: 0, file_bytes: 0, used: 0, reserved: 0 };

describe.each(["disk", "s3"] as const)("on %s nothing is left", (kind) => {
  let gateway: FilesGateway;
  const clock = new VirtualClock(Date.now());
  beforeAll(async () => {
    gateway = await startFilesGateway(kind, { clock });
  });
  afterAll(() => gateway.stop());

  // A removal that a test's jump of the clock has timed out is due again only after half a minute of
  // the database's own clock.
  const cleaned = (what = NOTHING) =>
    until("neither rows nor bytes are left", async () => {
      clock.advance(500);
      await gateway.sql`UPDATE file_removals SET due_at = clock_timestamp()`;
      const books = await fileBooks(gateway);
      return Bun.deepEquals(books, what) && (await gateway.countStored()) === what.files;
    });
  const running = () =>
    until("bytes are in the store and room is set aside", async () => {
      const { uploads, reserved } = await fileBooks(gateway);
      return uploads === 1 && reserved! > 0 && (await gateway.countStored()) > 0;
    });

  /** A large upload that stands still in its middle. */
  function begin() {
    const stopped = Promise.withResolvers<void>();
    const leaving = new AbortController();
    const form = streamedForm({
      purpose: "user_data",
      fileBytes: 40 * MEGABYTE,
      pattern: new Uint8Array(MEGABYTE),
      before: (sent) => (sent >= 20 * MEGABYTE ? stopped.promise : undefined),
    });
    const answer = sendStreamed(gateway.baseUrl, gateway.secretKey, form, leaving.signal);
    answer.catch(() => {});
    return { answer, goOn: () => stopped.resolve(), leave: () => leaving.abort() };
  }

  test("of an upload whose client goes away in the middle", async () => {
    const { leave } = begin();
    await running();
    leave();
    await cleaned();
  });

  test("of an upload whose client falls silent", async () => {
    const { answer } = begin();
    await running();
    let status: number | undefined;
    void answer.then((response) => {
      status = response.status;
    });
    await until("it is given up", () => {
      clock.advance(1_000);
      return status === 499;
    });
    await cleaned();
  });

  test("of an upload that was taken for dead, and it is told to come again", async () => {
    const { answer, goOn } = begin();
    await running();
    await gateway.sql`UPDATE file_uploads SET renewed_at = renewed_at - interval '2 minutes'`;
    // By the gateway's own cleaning, where that happens to be at it, or by this one.
    await abandonDeadUploads(gateway.sql, { silentSeconds: 60, limit: 10 });
    await until("it is given up", async () => (await fileBooks(gateway)).uploads === 0);
    goOn();
    await expectError(await answer, 503, "overloaded");
    clock.advance(30_000);
    await cleaned();
  });

  test("of an upload whose bytes come after they were swept away", async () => {
    const gate = Promise.withResolvers<void>();
    let sentBytes = 0;
    const form = streamedForm({
      purpose: "user_data",
      fileBytes: 2 * MEGABYTE,
      pattern: new Uint8Array(MEGABYTE / 4),
      before(sent) {
        sentBytes = sent;
        return sent >= MEGABYTE ? gate.promise : undefined;
      },
    });
    const answer = sendStreamed(gateway.baseUrl, gateway.secretKey, form);
    await until("half of it was sent", () => sentBytes === MEGABYTE);
    await until("it is noted", async () => (await fileBooks(gateway)).uploads === 1);
    await abandonDeadUploads(gateway.sql, { silentSeconds: -1, limit: 10 });
    clock.advance(30_000);
    await until("it is swept", async () => (await fileBooks(gateway)).removals === 0);
    gate.resolve();
    expect((await answer).status).toBe(503);
    await cleaned();
  });

  test("of an upload that lives it stays, however long it takes", async () => {
    const { answer, goOn } = begin();
    await running();
    await gateway.sql`UPDATE file_uploads SET renewed_at = renewed_at - interval '50 seconds'`;
    clock.advance(11_000);
    await until("it says that it is alive", async () => {
      const [row] = await gateway.sql`
        SELECT renewed_at > clock_timestamp() - interval '20 seconds' AS is_fresh FROM file_uploads`;
      return row!.is_fresh as boolean;
    });
    goOn();
    const { id } = (await (await answer).json()) as { id: string };
    await gateway.request("DELETE", `/v1/files/${id}`);
    await cleaned();
  });

  test("of uploads of an instance that is dead, and what is set aside for them is free", async () => {
    const dead = { id: "ins_dead", epoch: 1n };
    await insertInstance(gateway.sql, dead);
    const { answer, goOn } = begin();
    await running();
    await gateway.sql`UPDATE file_uploads SET instance_id = ${dead.id}, epoch = 1`;
    await gateway.sql`UPDATE instances SET alive = false WHERE id = ${dead.id}`;
    clock.advance(30_000);
    await until("nothing is set aside", async () => (await fileBooks(gateway)).reserved === 0);
    goOn();
    await expectError(await answer, 503, "overloaded");
    await cleaned();
  });

  test("of a deleted file, nor of one for vision after its day", async () => {
    const kept = await uploaded(gateway, "user_data", "abc");
    const seen = await uploaded(gateway, "vision", image("png", 5, 5));
    const gone = await uploaded(gateway, "user_data", "def");
    await gateway.request("DELETE", `/v1/files/${gone.id}`);
    await gateway.sql`UPDATE files SET expires_at = clock_timestamp() WHERE id = ${seen.id}`;
    // Gone for everyone from that moment, whenever it is cleared away.
    await expectError(await getContent(gateway, seen.id), 404, "file_not_found");
    const deletion = await gateway.request("DELETE", `/v1/files/${seen.id}`);
    await expectError(deletion, 404, "file_not_found");
    const list = await gateway.request("GET", "/v1/files");
    expect(((await list.json()) as { data: { id: string }[] }).data.map(({ id }) => id)).toEqual([
      kept.id,
    ]);
    clock.advance(30_000);
    await cleaned({ ...NOTHING, files: 1, file_bytes: 3, used: 3 });
    await gateway.request("DELETE", `/v1/files/${kept.id}`);
    await cleaned();
  });

  test("of more expired files than are taken away at a time", async () => {
    const { id } = await uploaded(gateway, "vision", image("png", 5, 5));
    await gateway.sql`
      INSERT INTO files (id, organization_id, filename, purpose, content_type, bytes, status, created_at, expires_at)
      SELECT 'file_' || n, organization_id, filename, purpose, content_type, 0, status, created_at, expires_at
      FROM files, generate_series(1, 450) n WHERE id = ${id}`;
    await gateway.sql`UPDATE files SET expires_at = clock_timestamp()`;
    clock.advance(30_000);
    await cleaned();
  });

  if (kind === "disk") return;

  test("of an upload that the store refuses in the middle", async () => {
    let parts = 0;
    gateway.s3!.faults.push({
      matches: (method, url) => method === "PUT" && url.searchParams.has("partNumber"),
      answer: () => (++parts > 2 ? new Response("full", { status: 400 }) : undefined),
    });
    const answer = await upload(gateway, "user_data", new Uint8Array(40 * MEGABYTE));
    await expectError(answer, 503, "overloaded");
    gateway.s3!.faults.splice(0);
    await cleaned();
  });

  test("in the end, though the store does not remove at first", async () => {
    const { id } = await uploaded(gateway, "user_data", "abc");
    gateway.s3!.faults.push({
      matches: (method) => method === "DELETE",
      answer: () => new Response("no", { status: 400 }),
    });
    await gateway.request("DELETE", `/v1/files/${id}`);
    await until("it was tried", async () => {
      const [row] = await gateway.sql`SELECT attempts FROM file_removals`;
      return row?.attempts === 1;
    });
    expect(await gateway.countStored()).toBe(1);
    await until("the failure is logged", () =>
      /"background failure"/.test(gateway.logLines.join()),
    );
    gateway.s3!.faults.splice(0);
    await gateway.sql`UPDATE file_removals SET due_at = clock_timestamp()`;
    clock.advance(30_000);
    await cleaned();
  });
});
