import { afterAll, describe, expect, test } from "bun:test";
import { chownSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { exitOf, firstKeys, Grounds, serverPid } from "../crash/gateway-process.ts";
import { chat } from "./client.ts";

/*
 * Run as root, the other tests of this folder start gateways as root; here it is a normal user who starts
 * one. Run as a normal user, all of them are that.
 */

const TIMEOUT_MS = 60_000;
const NOBODY = 65_534;
const AS_NOBODY = ["setpriv", "--reuid", `${NOBODY}`, "--regid", `${NOBODY}`, "--clear-groups"];
const project = join(import.meta.dir, "..", "..");
/** A checkout below a closed folder such as /root is out of another user's reach. */
const canBeNobody =
  process.getuid?.() === 0 &&
  Bun.which("setpriv") !== null &&
  Bun.spawnSync([...AS_NOBODY, process.execPath, "--version"], { cwd: "/" }).success &&
  Bun.spawnSync([...AS_NOBODY, "test", "-r", join(project, "src", "main.ts")]).success;

const grounds = new Grounds("normal-user");
afterAll(() => grounds.clear());

describe.skipIf(!canBeNobody)("started by a normal user in a checkout of somebody else", () => {
  test(
    "the gateway works, everything in its data folder is that user's, and a later start finds it",
    async () => {
      const dataDir = grounds.newDataDir();
      mkdirSync(dataDir, { mode: 0o700 });
      chownSync(dataDir, NOBODY, NOBODY);
      let secret: string | undefined;
      for (let time = 1; time <= 2; time++) {
        const gateway = grounds.launch({ dataDir, prefix: AS_NOBODY, fromSource: true });
        const baseUrl = await gateway.listening;
        secret ??= firstKeys(dataDir).secret_key;
        expect((await chat(baseUrl, secret)).status).toBe(200);
        expect(statSync(`/proc/${serverPid(dataDir)}`).uid).toBe(NOBODY);
        gateway.signal("SIGTERM");
        expect(await exitOf(gateway)).toBe(0);
      }
      for (const name of ["first-keys.json", "master-key", "postgres"]) {
        const { uid, mode } = statSync(join(dataDir, name));
        expect({ name, uid, others: mode & 0o077 }).toEqual({ name, uid: NOBODY, others: 0 });
      }
    },
    TIMEOUT_MS,
  );

  test(
    "a data folder that the user cannot write to is refused in one line that names it",
    async () => {
      const closed = join(grounds.folder, "closed");
      mkdirSync(closed, { mode: 0o755 });
      const gateway = grounds.launch({
        dataDir: join(closed, "data"),
        prefix: AS_NOBODY,
        fromSource: true,
      });
      expect(await exitOf(gateway)).toBe(1);
      expect(gateway.stderr().trimEnd().split("\n")).toEqual([
        expect.stringContaining(join(closed, "data")),
      ]);
    },
    TIMEOUT_MS,
  );
});
