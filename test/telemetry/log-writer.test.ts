import { describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { LogWriter, type WritableFile } from "../../src/platform/telemetry/log-writer.ts";

type Callback = (error: NodeJS.ErrnoException | null, written: number) => void;

/** A file descriptor whose writes end when and how the test says. */
class ScriptedFile {
  readonly #taken: Buffer[] = [];
  waiting: { bytes: Buffer; done: Callback } | undefined;
  /** Errors of the next synchronous writes. */
  syncErrors: string[] = [];

  readonly file = {
    write: (
      _fd: number,
      buffer: Buffer,
      offset: number,
      length: number,
      _at: null,
      done: Callback,
    ) => {
      this.waiting = { bytes: buffer.subarray(offset, offset + length), done };
    },
    writeSync: (_fd: number, buffer: Buffer, offset: number) => {
      const code = this.syncErrors.shift();
      if (code !== undefined) throw Object.assign(new Error(code), { code });
      this.#taken.push(Buffer.from(buffer.subarray(offset)));
      return buffer.length - offset;
    },
  } as unknown as WritableFile;

  get written(): string {
    return Buffer.concat(this.#taken).toString();
  }

  /** Lets the write under way take all of its bytes, or only some. */
  accept(byteCount = Number.POSITIVE_INFINITY): void {
    const { bytes, done } = this.#take();
    const taken = bytes.subarray(0, byteCount);
    this.#taken.push(Buffer.from(taken));
    done(null, taken.length);
  }

  fail(code: string): void {
    this.#take().done(Object.assign(new Error(code), { code }), 0);
  }

  #take(): { bytes: Buffer; done: Callback } {
    const waiting = this.waiting;
    if (waiting === undefined) throw new Error("no write is under way");
    this.waiting = undefined;
    return waiting;
  }
}

function start(): { writer: LogWriter; disk: ScriptedFile; clock: VirtualClock } {
  const clock = new VirtualClock();
  const disk = new ScriptedFile();
  return { writer: new LogWriter(1, clock, disk.file), disk, clock };
}

const LONG_LINE = `${"x".repeat(9999)}\n`;

describe("the log writer", () => {
  test("writes a lone line within 250 ms", () => {
    const { writer, disk, clock } = start();
    writer.write("one\n");
    writer.write("two\n");
    clock.advance(249);
    expect(disk.waiting).toBeUndefined();
    clock.advance(1);
    disk.accept();
    expect(disk.written).toBe("one\ntwo\n");
    writer.write("three\n");
    clock.advance(250);
    disk.accept();
    expect(disk.written).toBe("one\ntwo\nthree\n");
  });

  test("writes a full block at once and gathers the next one meanwhile", () => {
    const { writer, disk, clock } = start();
    for (let count = 0; count < 4; count++) writer.write(LONG_LINE);
    expect(disk.waiting?.bytes.length).toBe(40_000);
    writer.write("next\n");
    disk.accept();
    clock.advance(250);
    disk.accept();
    expect(disk.written).toBe(`${LONG_LINE.repeat(4)}next\n`);
  });

  test("loses and doubles nothing over partial writes and busy files", () => {
    const { writer, disk, clock } = start();
    const lines = `${"é€😀".repeat(20)}\n`.repeat(500);
    writer.write(lines);
    disk.accept(1);
    disk.fail("EAGAIN");
    expect(disk.waiting).toBeUndefined();
    clock.advance(20);
    disk.accept(30_001);
    disk.fail("EINTR");
    clock.advance(20);
    disk.accept();
    expect(disk.written).toBe(lines);
    expect(writer.droppedLines).toBe(0);
  });

  test("counts what a full disk refuses, and goes on when there is room again", () => {
    const { writer, disk, clock } = start();
    writer.write("lost\n");
    writer.write("lost\n");
    clock.advance(250);
    disk.fail("ENOSPC");
    expect(writer.droppedLines).toBe(2);
    writer.write("kept\n");
    clock.advance(250);
    disk.accept();
    expect(disk.written).toBe("kept\n");
  });

  test("gives up when the reader is gone, and says how many lines were lost", () => {
    const { writer, disk, clock } = start();
    writer.write("lost\n");
    clock.advance(250);
    writer.write("lost\n");
    disk.fail("EPIPE");
    writer.write("lost\n");
    clock.advance(1000);
    expect(disk.waiting).toBeUndefined();
    expect(writer.droppedLines).toBe(3);
    writer.flushSync();
    expect(disk.written).toBe("");
  });

  test("keeps at most 4 MiB for a reader that stalls, and counts the lines beyond", () => {
    const { writer, disk } = start();
    for (let count = 0; count < 1000; count++) writer.write(LONG_LINE);
    const kept = 4 + Math.floor(4_194_304 / LONG_LINE.length);
    expect(writer.droppedLines).toBe(1000 - kept);
    while (disk.waiting) disk.accept();
    expect(disk.written.length).toBeGreaterThan(LONG_LINE.length * (kept - 4));
  });

  test("flushes what is buffered at once, over a busy file too", () => {
    const { writer, disk } = start();
    writer.write("last words\n");
    disk.syncErrors = ["EAGAIN"];
    writer.flushSync();
    expect(disk.written).toBe("last words\n");
    writer.flushSync();
    expect(disk.written).toBe("last words\n");
  });

  test("ends a flush into a closed pipe instead of trying for ever", () => {
    const { writer, disk } = start();
    writer.write("last words\n");
    disk.syncErrors = ["EPIPE"];
    writer.flushSync();
    expect(disk.written).toBe("");
    expect(writer.droppedLines).toBe(1);
  });

  test("closes when everything is written", async () => {
    const { writer, disk, clock } = start();
    for (let count = 0; count < 4; count++) writer.write(LONG_LINE);
    writer.write("last\n");
    let isClosed = false;
    const closing = writer.close().then(() => {
      isClosed = true;
    });
    disk.accept();
    await Promise.resolve();
    expect(isClosed).toBe(false);
    disk.accept();
    await closing;
    expect(disk.written).toEndWith("last\n");
    writer.write("late\n");
    clock.advance(1000);
    expect(writer.droppedLines).toBe(1);
  });

  test("closes after a second although the reader stalls", async () => {
    const { writer, clock } = start();
    writer.write("stuck\n");
    const closing = writer.close();
    clock.advance(1000);
    await closing;
  });
});

describe("the process's standard output", () => {
  const program = `
    import { createTelemetry } from "${import.meta.dir}/../../src/platform/telemetry/create-telemetry.ts";
    const telemetry = createTelemetry({ level: "info" });
    telemetry.log.info("first");
    const [way] = process.argv.slice(-1);
    if (way === "exit") process.exit(0);
    if (way === "throw") setTimeout(() => { throw new Error("unforeseen"); });
    if (way === "fatal") {
      telemetry.log.fatal("dying");
      process.kill(process.pid, "SIGKILL");
    }
    if (way === "close") await telemetry.close();`;

  function run(way: string): string {
    const child = Bun.spawnSync([process.execPath, "-e", program, way], { stderr: "ignore" });
    return child.stdout
      .toString()
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line).msg)
      .join();
  }

  test("has every line after an exit, an unforeseen error, a fatal line and a close", () => {
    expect(run("exit")).toBe("first");
    expect(run("throw")).toBe("first");
    expect(run("fatal")).toBe("first,dying");
    expect(run("close")).toBe("first");
  });
});
