import { afterAll, expect, test } from "bun:test";
import { connectDatabase, LEDGER_SETTINGS } from "../../db/client.ts";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { migrate } from "../../db/migrate.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";
import { serverPid, temporaryFolders } from "../embedded/owner-process.ts";
import { startCuttingProxy } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import { recordingLedger, traceEffect, tracesOf } from "./recording-ledger.ts";

const TIMEOUT_MS = 60_000;
const REVIVAL_MS = 30_000;
/** Others that write before the ledger does; the lost transaction's number is among theirs. */
const OTHERS = 20;

const folders = temporaryFolders();
afterAll(() => folders.remove());

test(
  "a transaction that a crash of the server undid is written again, though another one has got its number",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const server = await startEmbeddedPostgres({ dataDir, log: () => {}, transport: "tcp" });
    await migrate({ url: server.url });
    const direct = connectDatabase(
      { url: server.url },
      { poolSize: 1, applicationName: "looking" },
    );
    const instance = { id: newId("ins"), epoch: 1n };
    await insertInstance(direct, instance);
    const network = await startCuttingProxy(server.url);
    const sql = connectDatabase(
      { url: network.url },
      { poolSize: 1, applicationName: "ledger", settings: LEDGER_SETTINGS },
    );
    const { ledger } = recordingLedger(sql, instance);
    const trace = traceEffect("written in the end");
    let lostNumber = 0n;
    const crashing: StatementEffect = {
      ...trace,
      async run(transaction) {
        await trace.run(transaction);
        if (lostNumber > 0n) return;
        const [row] = await transaction`SELECT pg_current_xact_id()::text AS number`;
        lostNumber = BigInt(row!.number as string);
        network.breakDown();
        process.kill(serverPid(dataDir), "SIGKILL");
      },
    };
    const submitted = ledger.submit([crashing]);
    await until("the server is gone", () => lostNumber > 0n);
    let highest = 0n;
    await until(
      "another server has handed the number out again",
      async () => {
        for (let i = 0; i < OTHERS && highest < lostNumber; i++) {
          const [row] = await direct`SELECT pg_current_xact_id()::text AS number`.catch(() => []);
          if (row !== undefined) highest = BigInt(row.number as string);
        }
        return highest >= lostNumber;
      },
      REVIVAL_MS,
    );
    network.restore();
    await submitted;
    expect(await tracesOf(direct)).toEqual(["written in the end"]);
    await Promise.all([sql.end({ timeout: 1 }), direct.end({ timeout: 1 })]);
    await network.stop();
    await server.stop();
  },
  TIMEOUT_MS,
);
