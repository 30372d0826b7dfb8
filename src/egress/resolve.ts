import { lookup } from "node:dns/promises";
import type { Resolve } from "./guard.ts";

/** The addresses that this machine's resolver gives, its own hosts file included. */
export const systemResolve: Resolve = async (hostName) => {
  const found = await lookup(hostName, { all: true, verbatim: true });
  return found.map(({ address }) => address);
};
