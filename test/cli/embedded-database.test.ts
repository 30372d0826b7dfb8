import { afterAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { withServer } from "../../src/main/cli/operator-database.ts";
import { connectTo, killOwner, startOwner, temporaryFolders } from "../embedded/owner-process.ts";
import { programEnvironment, programFile } from "../support/programs.ts";
import { until } from "../support/until.ts";
import { printed, runCliProcess } from "./cli-runs.ts";

const TIMEOUT_MS = 60_000;
const folders = temporaryFolders();
afterAll(() => folders.remove());

/** How many sessions the database has had. */
async function sessionsOf(sql: ReturnType<typeof connectTo>): Promise<number> {
  const [row] = await sql`
    SELECT sessions::int AS sessions FROM pg_stat_database WHERE datname = current_database()`;
  return row!.sessions as number;
}

interface Created {
  readonly organization: { readonly id: string };
  readonly secret_key: string;
}

test(
  "without a gateway the embedded database is made, used and stopped by each command",
  async () => {
    const settings = { DATA_DIR: folders.next() };
    const made = await runCliProcess(settings, "org", "create", "--name", "First", "--json");
    expect(made.exitCode).toBe(0);
    expect(findRunningEmbeddedPostgres(settings.DATA_DIR)).toBeUndefined();
    const { organization } = JSON.parse(made.stdout) as Created;
    for (const amount of ["1.5", "-0.5"]) {
      printed(
        await runCliProcess(
          settings,
          ...["credits", "adjust", "--org", organization.id, "--amount-usd", amount],
          ...["--description", "By hand", "--json"],
        ),
      );
    }
    const listed = await runCliProcess(settings, "org", "list", "--json");
    expect(printed<{ data: object[] }>(listed).data).toEqual([
      expect.objectContaining({ id: organization.id, balance_usd: 11 }),
    ]);
    expect(findRunningEmbeddedPostgres(settings.DATA_DIR)).toBeUndefined();
  },
  TIMEOUT_MS,
);

test(
  "commands at the same time share one server, and all of them succeed",
  async () => {
    const settings = { DATA_DIR: await folders.nextWithDatabase() };
    const names = ["A", "B", "C", "D"];
    const runs = await Promise.all(
      names.map((name) => runCliProcess(settings, "org", "create", "--name", name, "--json")),
    );
    for (const run of runs) expect(run).toMatchObject({ exitCode: 0, stderr: "" });
    const listed = printed<{ data: { name: string }[] }>(
      await runCliProcess(settings, "org", "list", "--json"),
    );
    expect(listed.data.map(({ name }) => name).sort()).toEqual(names);
    expect(findRunningEmbeddedPostgres(settings.DATA_DIR)).toBeUndefined();
  },
  TIMEOUT_MS,
);

test(
  "a command does no work on a server whose owner is about to stop it, and starts its own",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const settings = { databaseUrl: undefined, dataDir };
    const worked: string[] = [];
    const mayEnd = Promise.withResolvers<void>();
    const isRunning = Promise.withResolvers<void>();
    const owner = withServer(
      settings,
      () => {},
      async () => {
        isRunning.resolve();
        await mayEnd.promise;
      },
    );
    await isRunning.promise;
    const url = findRunningEmbeddedPostgres(dataDir);
    // The owner waits for this connection, and takes no guest any more.
    const standing = connectTo(url);
    await standing`SELECT 1`;
    mayEnd.resolve();
    await until("the owner lets no guest in", async () => {
      const locks =
        await standing`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'`;
      return locks.length > 0;
    });
    const sessionsBefore = await sessionsOf(standing);
    const guest = withServer(
      settings,
      () => {},
      async (sql) => {
        worked.push("begun");
        await sql`SELECT pg_sleep(0.3)`;
        worked.push("ended");
      },
    );
    // The guest's attempts are too short to be seen one by one; the server counts them.
    await until("the guest has come twice, or works", async () => {
      const sessions = await sessionsOf(standing);
      return sessions >= sessionsBefore + 2 || worked.length > 0;
    });
    expect(worked).toEqual([]);
    await standing.end({ timeout: 1 });
    await owner;
    await guest;
    expect(worked).toEqual(["begun", "ended"]);
    expect(findRunningEmbeddedPostgres(dataDir)).toBeUndefined();
  },
  TIMEOUT_MS,
);

test(
  "beside a gateway its own database is used, and left running",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const settings = { DATA_DIR: dataDir };
    const gateway = await startGateway(dataDir);
    try {
      const created = printed<Created>(
        await runCliProcess(settings, "org", "create", "--name", "Beside", "--json"),
      );
      const answer = await fetch(`${gateway.baseUrl}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${created.secret_key}`,
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "sandbox/chat",
          messages: [{ role: "user", content: "hello" }],
          max_tokens: 16,
        }),
      });
      expect(answer.status).toBe(200);
      const doctor = await runCliProcess(settings, "doctor");
      expect(doctor).toMatchObject({ exitCode: 0, stderr: "" });
      expect(doctor.stdout).toContain("running on this database");
      expect((await fetch(`${gateway.baseUrl}/readyz`)).status).toBe(200);
    } finally {
      gateway.child.kill("SIGTERM");
      await gateway.child.exited;
    }
  },
  TIMEOUT_MS,
);

test(
  "the server that a killed gateway left is taken over, and stopped afterwards",
  async () => {
    const settings = { DATA_DIR: await folders.nextWithDatabase() };
    const owner = await startOwner(settings.DATA_DIR);
    await killOwner(owner);
    expect(findRunningEmbeddedPostgres(settings.DATA_DIR)).toBeDefined();
    expect((await runCliProcess(settings, "org", "list")).exitCode).toBe(0);
    expect(findRunningEmbeddedPostgres(settings.DATA_DIR)).toBeUndefined();
  },
  TIMEOUT_MS,
);

test("doctor makes no database where there is none, and looks at one that does not run", async () => {
  const settings = { DATA_DIR: folders.next(), PORT: "0" };
  const before = await runCliProcess(settings, "doctor");
  expect(before).toMatchObject({ exitCode: 0, stderr: "" });
  expect(existsSync(settings.DATA_DIR)).toBeFalse();
  expect((await runCliProcess(settings, "migrate")).exitCode).toBe(0);
  const after = await runCliProcess(settings, "doctor");
  expect(after.stdout).toMatch(/ok\s+migrations\s+up to date/);
  expect(findRunningEmbeddedPostgres(settings.DATA_DIR)).toBeUndefined();
}, 60_000);

async function startGateway(dataDir: string) {
  const child = Bun.spawn([process.execPath, programFile("gateway")], {
    cwd: import.meta.dir,
    env: { ...programEnvironment(), DATA_DIR: dataDir, PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let log = "";
  void (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) log += decoder.decode(bytes, { stream: true });
  })();
  const baseUrl = await until(
    "the gateway listens",
    () => /listening on (http:[^\s"]+)/.exec(log)?.[1],
    30_000,
  );
  return { child, baseUrl };
}
