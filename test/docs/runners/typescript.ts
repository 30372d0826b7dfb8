/*
 * Runs the TypeScript blocks of a page in one process. Reads a path from each line of standard input, and
 * prints the status after a record separator when the block has ended.
 */

for await (const path of console) {
  let status = 0;
  try {
    await import(path);
  } catch (error) {
    console.error(error);
    status = 1;
  }
  await new Promise((resolve) => process.stdout.write(`\x1e${status}\x1e`, resolve));
}
