import { expect, test } from "bun:test";
import { subRip, webVtt } from "../../src/inference/endpoints/transcriptions/subtitles.ts";

const segment = (id: number, start: number, end: number, text: string) => ({
  id,
  start,
  end,
  text,
});

test("subtitles number and time their cues", () => {
  const segments = [segment(0, 0, 1.5, " Hello."), segment(1, 3_599.9996, 36_000.25, "Over.")];
  expect(subRip(segments)).toBe(
    "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:00:00,000 --> 10:00:00,250\nOver.\n\n",
  );
  expect(webVtt(segments)).toBe(
    "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n01:00:00.000 --> 10:00:00.250\nOver.\n\n",
  );
  expect(subRip([])).toBe("");
  expect(webVtt([])).toBe("WEBVTT\n\n");
});

test("no text ends its cue, begins another, or becomes a tag", () => {
  const hostile = "a\r\n\r\n2\n00:00:01,000 --> 00:00:02,000\u2028\n<b>x</b> & y\0\x1b";
  const [rip, vtt] = [subRip([segment(0, 0, 1, hostile)]), webVtt([segment(0, 0, 1, hostile)])];
  expect(rip).toBe(
    "1\n00:00:00,000 --> 00:00:01,000\na\n2\n00:00:01,000 -> 00:00:02,000\n<b>x</b> & y\n\n",
  );
  expect(vtt.match(/-->/g)).toHaveLength(1);
  expect(vtt).toContain("00:00:01,000 --&gt; 00:00:02,000\n&lt;b&gt;x&lt;/b&gt; &amp; y\n\n");
});

test("a cue without text is left out, and one that ends before its beginning takes no time", () => {
  expect(subRip([segment(0, 1, 2, " \n "), segment(1, 5, 4, "x")])).toBe(
    "1\n00:00:05,000 --> 00:00:05,000\nx\n\n",
  );
});
