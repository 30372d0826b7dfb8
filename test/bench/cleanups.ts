/** What has to be undone, last to first, once, however the benchmark ends. */
export class Cleanups {
  readonly #steps: (() => unknown)[] = [];
  #running: Promise<void> | undefined;

  add(step: () => unknown): void {
    this.#steps.push(step);
  }

  /** Resolves when everything is undone; a failing step is reported and does not stop the others. */
  run(): Promise<void> {
    this.#running ??= this.#runAll();
    return this.#running;
  }

  async #runAll(): Promise<void> {
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step();
      } catch (error) {
        process.stderr.write(`cleaning up: ${error}\n`);
      }
    }
  }
}
