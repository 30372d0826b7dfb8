import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { systemResolve } from "../../src/platform/egress/guard.ts";
import { until } from "../support/until.ts";
import { startSilentNameServer } from "./silent-name-server.ts";

test("names whose servers keep silent hold up neither other names nor the reading of files", async () => {
  const known = { name: "known.example.com", ip: "93.184.215.14" };
  const server = await startSilentNameServer(known);
  try {
    const codeOf = (error: { code: string }) => error.code;
    const waiting = Array.from({ length: 100 }, (_, n) =>
      systemResolve(`silent-${n}.example.com`).then(() => "found", codeOf),
    );
    await until("they are asked for", () => server.heldQueries >= 100);
    expect(await systemResolve(known.name)).toEqual([known.ip]);
    expect(await systemResolve("localhost")).toContain("127.0.0.1");
    expect(await readFile(import.meta.path, "utf8")).toContain("silent");
    server.breakSilence();
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(["DNS_ENOTFOUND"]));
  } finally {
    server.stop();
  }
}, 60_000);
