import { afterAll, describe, expect, test } from "bun:test";
import { ServerSupervision } from "../../db/embedded/server.ts";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { until } from "../support/until.ts";
import { connectTo, query, serverPid, temporaryFolders } from "./owner-process.ts";

const TIMEOUT_MS = 60_000;
const folders = temporaryFolders();
afterAll(() => folders.remove());

const ADDRESS = { kind: "tcp", port: 1 } as const;

/** A server that the test kills and stops, and that comes up where the test lets it. */
function supervised() {
  const state = { isRunning: true, isStopping: false, mayStart: true, starts: 0, ends: 0 };
  const lines: string[] = [];
  const server = {
    isRunning: () => state.isRunning,
    isStopping: () => state.isStopping,
    async end() {
      state.ends++;
      state.isRunning = false;
      state.isStopping = false;
    },
    async restart() {
      state.starts++;
      if (!state.mayStart) throw new Error("no space left on device");
      state.isRunning = true;
      return { pid: state.starts, address: ADDRESS };
    },
  };
  const supervision = new ServerSupervision(
    { pid: 0, address: ADDRESS },
    server,
    (line) => void lines.push(line),
    0,
  );
  let nowMs = 0;
  const pass = async (seconds: number) => {
    for (let n = 0; n < seconds; n++) {
      nowMs += 1_000;
      supervision.look(nowMs);
      await until("it is done", () => !supervision.isBusy);
    }
  };
  return { state, lines, supervision, pass };
}

describe("a server that is gone", () => {
  test("is started again for as long as that fails, less and less often", async () => {
    const { state, lines, pass } = supervised();
    await pass(60);
    Object.assign(state, { isRunning: false, mayStart: false });
    await pass(1);
    expect(state.starts).toBe(1);
    await pass(15);
    expect(state.starts).toBe(5);
    await pass(300);
    expect(state.starts).toBeWithin(30, 40);
    expect(lines.at(-1)).toBe("no space left on device; trying again in 10 s");
    state.mayStart = true;
    await pass(11);
    expect(state.isRunning).toBeTrue();
    const { starts } = state;
    await pass(60);
    expect(state.starts).toBe(starts);
  });

  test("is started again at once where it had run for a while, however often it goes", async () => {
    const { state, pass } = supervised();
    for (let kill = 1; kill <= 20; kill++) {
      await pass(4);
      state.isRunning = false;
      await pass(1);
      expect(state.starts).toBe(kill);
    }
  });

  test("is not started again and again at once where it dies at once", async () => {
    const { state, pass } = supervised();
    for (let second = 0; second < 120; second++) {
      state.isRunning = false;
      await pass(1);
    }
    expect(state.starts).toBeWithin(4, 17);
  });
});

describe("a server that was asked to stop", () => {
  test("is ended after a moment, and started again", async () => {
    const { state, pass } = supervised();
    await pass(5);
    state.isStopping = true;
    await pass(3);
    expect(state.ends).toBe(0);
    await pass(2);
    expect(state).toMatchObject({ ends: 1, starts: 1, isRunning: true });
  });

  test("is left to wait for its connections where the gateway stops too", async () => {
    const { state, supervision, pass } = supervised();
    state.isStopping = true;
    await pass(2);
    supervision.announceStop();
    await pass(60);
    expect(state).toMatchObject({ ends: 0, starts: 0 });
  });
});

test(
  "a server that somebody asks to stop takes connections again soon, although its old ones stand",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const server = await startEmbeddedPostgres({ dataDir, log: () => {} });
    const standing = connectTo(server.url);
    await standing`SELECT 1`;
    process.kill(serverPid(dataDir), "SIGTERM");
    const refused = () =>
      query(server.url, "SELECT 1").then(
        () => false,
        () => true,
      );
    await until("it takes no connection any more", refused);
    await until("it takes connections again", async () => !(await refused()));
    await standing.end({ timeout: 0 });
    await server.stop();
  },
  TIMEOUT_MS,
);
