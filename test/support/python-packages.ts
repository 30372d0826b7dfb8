import { existsSync, lstatSync, mkdirSync } from "node:fs";
import { mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { warnOfSkippedTests } from "./services.ts";

/** Quicker than pip by far, which installs it. */
const UV = "uv==0.13.9";
const UV_MS = 90_000;
const PACKAGES_MS = 150_000;
const LEAST_VERSION = "(3, 11)";

const NO_PYTHON_WARNING =
  "No python3 of version 3.11 or later with pip on the PATH: tests of Python clients are skipped (an error if CI=true).";

/**
 * The python3 on the PATH, or undefined where the tests that need it are to be skipped.
 *
 * @throws where there is none and CI=true.
 */
export async function findPython(): Promise<string | undefined> {
  const python = Bun.which("python3");
  const code = `import sys, pip; sys.exit(sys.version_info < ${LEAST_VERSION})`;
  if (python !== null && (await run([python, "-c", code], 20_000)).exitCode === 0) return python;
  if (process.env.CI === "true") throw new Error(NO_PYTHON_WARNING);
  warnOfSkippedTests(NO_PYTHON_WARNING);
  return undefined;
}

/**
 * The folder that holds the packages of a file of requirements, for PYTHONPATH. It is kept for later runs
 * in the folder for temporary files, under a hash of what was installed into it.
 *
 * @throws where the registry does not answer in time, or a package is not there.
 */
export async function pythonPackages(python: string, requirements: string): Promise<string> {
  const base = ownFolder(join(tmpdir(), `gateway-python-${userInfo().uid}`));
  const hash = new Bun.CryptoHasher("sha256")
    .update(`${python}\n${UV}\n`)
    .update(await readFile(requirements))
    .digest("hex")
    .slice(0, 16);
  const folder = join(base, hash);
  if (existsSync(folder)) return folder;
  const making = await mkdtemp(join(base, "making-"));
  const tools = await mkdtemp(join(base, "tools-"));
  try {
    const pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tools, UV];
    await install([...pip, "--only-binary", ":all:", "--disable-pip-version-check"], UV_MS);
    const uv = [join(tools, "bin", "uv"), "pip", "install", "--quiet", "--python", python];
    const wanted = ["--only-binary", ":all:", "--no-deps", "--requirements", requirements];
    await install([...uv, "--target", making, ...wanted], PACKAGES_MS, {
      UV_CACHE_DIR: join(base, "cache"),
      UV_PYTHON_DOWNLOADS: "never",
    });
    // Another run may have been quicker.
    await rename(making, folder).catch((error: unknown) => {
      if (!existsSync(folder)) throw error;
    });
    return folder;
  } finally {
    await rm(tools, { recursive: true, force: true });
    await rm(making, { recursive: true, force: true });
  }
}

/** What is run from a folder that others can write is theirs. */
function ownFolder(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(path);
  if (uid !== userInfo().uid || (mode & 0o022) !== 0) throw new Error(`${path} is open to others`);
  return path;
}

async function install(
  command: string[],
  timeoutMs: number,
  environment: Record<string, string> = {},
): Promise<void> {
  const { exitCode, errors } = await run(command, timeoutMs, environment);
  if (exitCode === 0) return;
  const what = exitCode === null ? `did not end within ${timeoutMs} ms` : `exited with ${exitCode}`;
  throw new Error(
    `Python's packages could not be installed (is a package registry reachable?): ${command.slice(0, 4).join(" ")} … ${what}\n${errors.slice(-2_000)}`,
  );
}

async function run(
  command: string[],
  timeoutMs: number,
  environment: Record<string, string> = {},
): Promise<{ exitCode: number | null; errors: string }> {
  const child = Bun.spawn(command, {
    env: { ...process.env, ...environment },
    stdio: ["ignore", "ignore", "pipe"],
    timeout: timeoutMs,
    killSignal: "SIGKILL",
  });
  const errors = await new Response(child.stderr).text();
  await child.exited;
  return { exitCode: child.signalCode === null ? child.exitCode : null, errors };
}
