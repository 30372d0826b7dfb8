import { dns } from "bun";
import type { Resolve } from "./guard.ts";

/**
 * The addresses that DNS, or this machine's hosts file, gives. Not by the C library: each of its lookups
 * holds a thread for as long as a name's servers keep silent, and these few threads also read files and
 * look up providers, so that a handful of such names would hold up the whole process.
 */
export const systemResolve: Resolve = async (hostName) => {
  const found = await dns.lookup(hostName, { backend: "c-ares" });
  return found.map(({ address }) => address);
};
