import { readFileSync } from "node:fs";
import { childrenOf, type GatewayProcess } from "../crash/gateway-process.ts";

/** The workers among what a parent has started; its embedded server is none. */
export function workersOf({ pid }: GatewayProcess): number[] {
  return childrenOf(pid).filter((child) => {
    try {
      return readFileSync(`/proc/${child}/cmdline`, "utf8").includes("--as-worker");
    } catch {
      return false;
    }
  });
}
