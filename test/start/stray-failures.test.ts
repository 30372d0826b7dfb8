import { expect, test } from "bun:test";
import { join } from "node:path";

const MODULE = join(import.meta.dir, "..", "..", "src", "main", "start", "serve.ts");

/** A process that meets a failure nobody listens for: what it said, and how it ended. */
async function meet(failure: string): Promise<{ said: string; exitCode: number }> {
  const script = `
    import { surviveStrayFailures } from ${JSON.stringify(MODULE)};
    import { Socket } from "node:net";
    const say = (fields, text) => console.log(text);
    surviveStrayFailures({ warn: say, fatal: say });
    setTimeout(() => console.log("alive"), 50);
    ${failure}`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "ignore" });
  const said = await new Response(child.stdout).text();
  return { said, exitCode: await child.exited };
}

test("a connection that breaks with nobody listening does not end the process", async () => {
  const { said, exitCode } = await meet(
    `new Socket().emit("error", Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));`,
  );
  expect(said).toBe("a connection failed after it was closed\nalive\n");
  expect(exitCode).toBe(0);
});

test.each([
  ["a thrown error", `throw new Error("a fault");`],
  ["a rejection", `void Promise.reject(new Error("a fault"));`],
])("any other failure ends it with 1: %s", async (_name, failure) => {
  const { said, exitCode } = await meet(failure);
  expect(said).toBe("uncaught failure; stopping\n");
  expect(exitCode).toBe(1);
});
