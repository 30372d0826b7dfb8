import { afterEach, beforeEach, expect, test } from "bun:test";
import { appendFileSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NoteFile } from "../../src/platform/storage/note-file.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "notes-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const open = (name: string) => new NoteFile<{ text: string }>(join(folder, "notes"), name);

test("what is noted is there for whoever comes later, until all of it is removed", () => {
  const first = open("first");
  expect(open("second").left()).toEqual([]);
  first.add("a", { text: "A" });
  first.add("b", { text: "B" });
  first.add("b", { text: "again" });
  first.remove("a");
  first.remove("unknown");
  expect(open("second").left()).toMatchObject([
    { name: "first", notes: [{ text: "A" }, { text: "B" }] },
  ]);
  expect(first.left()).toEqual([]);
  first.remove("b");
  expect(open("second").left()).toEqual([]);
  first.add("c", { text: "C" });
  expect(open("second").left()).toMatchObject([{ notes: [{ text: "C" }] }]);
});

test("a note that was cut off does not keep the others from being read, and what was read can be discarded", () => {
  open("first").add("a", { text: "A" });
  const path = join(folder, "notes", "first.jsonl");
  appendFileSync(path, '{"text": "cut');
  const [left] = open("second").left();
  expect(left!.notes).toEqual([{ text: "A" }]);
  left!.discard();
  expect(readdirSync(join(folder, "notes"))).toEqual([]);
});
