import { join } from "node:path";
import { plainEnvironment, stopProcess } from "./children.ts";
import type { Cleanups } from "./cleanups.ts";
import { UPSTREAM_CERTIFICATE_PATH } from "./upstream-address.ts";

/**
 * Builds and starts the reverse proxy of Go's standard library. Returns undefined if Go is not installed.
 */
export async function startGoProxy(
  upstream: string,
  folder: string,
  cleanups: Cleanups,
): Promise<{ readonly pid: number; readonly port: number } | undefined> {
  const go = Bun.which("go");
  if (go === null) return undefined;
  const program = join(folder, "go-proxy");
  const source = join(import.meta.dir, "go-proxy.go");
  const build = Bun.spawnSync([go, "build", "-o", program, source], { stderr: "pipe" });
  if (!build.success) throw new Error(`go build failed: ${build.stderr}`);
  const child = Bun.spawn([program, upstream], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...plainEnvironment(), SSL_CERT_FILE: UPSTREAM_CERTIFICATE_PATH },
    detached: true,
  });
  cleanups.add(() => stopProcess(child));
  const { value } = await child.stdout.getReader().read();
  const port = Number(new TextDecoder().decode(value));
  if (!(port > 0)) throw new Error("go-proxy.go ended too early");
  return { pid: child.pid, port };
}
