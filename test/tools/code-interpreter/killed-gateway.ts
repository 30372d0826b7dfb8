/* Starts an endless run of Python, prints the number of its process, and waits to be killed. */
import { createPool } from "./python-runs.ts";

const { signal } = new AbortController();
const process = await createPool().claim("org", signal);
void process.run("while True: pass", [], signal);
console.log(process.processId);
