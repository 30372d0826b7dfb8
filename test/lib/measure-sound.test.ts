import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { measureSound, type SoundLength } from "../../src/lib/sound/measure-sound.ts";
import { startStopwatch } from "../support/stopwatch.ts";

const recording = (name: string) => readFileSync(`${import.meta.dir}/../fixtures/audio/${name}`);

function lengthOf(bytes: Buffer): SoundLength | undefined {
  return measureSound({
    sizeBytes: bytes.length,
    readInto: (buffer, position) => bytes.copy(buffer, 0, position),
  });
}

function measure(bytes: Buffer): number | undefined {
  return lengthOf(bytes)?.durationMs;
}

/** Each is a tone of two seconds; encoders add some of their frames. */
const NAMES = [
  "a.mp3",
  "vbr.mp3",
  "a.aac",
  "a.wav",
  "adpcm.wav",
  "a.flac",
  "a.m4a",
  "fragmented.mp4",
  "opus.ogg",
  "vorbis.ogg",
  "a.webm",
];

/** With what stands at a place of the file. */
function patched(name: string, needle: string | Buffer, offset: number, bytes: number[]): Buffer {
  const copy = Buffer.from(recording(name));
  const at = copy.indexOf(needle);
  if (at < 0) throw new Error(`${name} has no such place`);
  Buffer.from(bytes).copy(copy, at + offset);
  return copy;
}

describe("the length of a sound", () => {
  test.each(NAMES)("is that of what is in it: %s", (name) => {
    expect(measure(recording(name))).toBeWithin(1_990, 2_140);
  });

  test.each(NAMES)("of a file that is cut is that of the rest, or none: %s", (name) => {
    const whole = recording(name);
    for (const share of [0.25, 0.5, 0.9]) {
      const measured = measure(whole.subarray(0, Math.floor(whole.length * share))) ?? 0;
      // What the heading takes of a small file is not sound.
      expect(measured).toBeLessThan(2_140 * share + 120);
    }
    expect(measure(whole.subarray(0, 3))).toBeUndefined();
  });

  test.each<[string, Buffer]>([
    ["a WAV that claims no data", patched("a.wav", "data", 4, [0, 0, 0, 0])],
    ["a WAV that claims ten hours", patched("a.wav", "data", 4, [0, 0x94, 0x35, 0x77])],
    ["a live WAV of unknown length", patched("a.wav", "data", 4, [255, 255, 255, 255])],
    ["a WAV that claims another rate of bytes", patched("a.wav", "fmt ", 16, [1, 0, 0, 0])],
    ["a FLAC that claims no samples", patched("a.flac", "fLaC", 21, [0xf0, 0, 0, 0, 0])],
    ["an MP4 whose film takes no time", patched("a.m4a", "mvhd", 20, [0, 0, 0, 1])],
    ["an MP4 whose track takes no time", patched("a.m4a", "mdhd", 20, [0, 0, 0, 1])],
    ["an MP4 of a million ticks a second", patched("a.m4a", "mdhd", 16, [0, 0x0f, 0x42, 0x40])],
    ["a VBR MP3 that claims one frame", patched("vbr.mp3", "Xing", 8, [0, 0, 0, 1])],
  ])("is not what its heading claims: %s", (_, bytes) => {
    expect(measure(bytes)).toBeWithin(1_990, 2_140);
  });

  const wav = recording("a.wav");
  const samples = wav.subarray(wav.indexOf("data") + 8);
  const chunk = (name: string, bytes: Uint8Array) => {
    const head = Buffer.alloc(8);
    head.write(name, "latin1");
    head.writeUInt32LE(bytes.length, 4);
    return Buffer.concat([head, bytes]);
  };
  const wavOf = (...chunks: Buffer[]) =>
    Buffer.concat([wav.subarray(0, 12), wav.subarray(12, 36), ...chunks]);

  test("of a WAV is that of all its data, and of one with two formats none", () => {
    const split = wavOf(
      chunk("data", samples.subarray(0, 200)),
      chunk("LIST", Buffer.alloc(10)),
      chunk("data", samples.subarray(200)),
    );
    expect(measure(split)).toBeWithin(1_990, 2_140);
    const fast = Buffer.from(wav.subarray(20, 36));
    fast.writeUInt32LE(768_000, 4);
    expect(measure(wavOf(chunk("fmt ", fast), chunk("data", samples)))).toBeUndefined();
  });

  /** An MP4 with further boxes behind the tables of its sound. */
  const box = (name: string, ...parts: Uint8Array[]) => {
    const bytes = Buffer.concat(parts);
    const head = Buffer.alloc(8);
    head.writeUInt32BE(bytes.length + 8);
    head.write(name, 4, "latin1");
    return Buffer.concat([head, bytes]);
  };
  const words = (...values: number[]) => {
    const bytes = Buffer.alloc(values.length * 4);
    for (const [at, value] of values.entries()) bytes.writeUInt32BE(value, at * 4);
    return bytes;
  };

  test("of an MP4 is not less for what its other tracks claim to hold", () => {
    const fake = box("moov", box("trak", box("stsz", words(0, 1_000_000_000, 1_000))));
    expect(measure(Buffer.concat([recording("a.m4a"), fake]))).toBeWithin(1_990, 2_140);
  });

  test("of an MP4 is not less for samples that are too large to be there", () => {
    const lying = patched("a.m4a", "stsz", 16, [0x7f, 0xff, 0xff, 0xff]);
    expect(measure(lying)).toBeWithin(1_990, 2_140);
  });

  test("of an MP4 whose rate is missing is still that of its frames", () => {
    const bytes = patched("a.m4a", "mdhd", 16, [0x7f, 0xff, 0xff, 0xff]);
    const at = bytes.indexOf("stsd") + 4 + 40;
    bytes.writeUInt16BE(0, at);
    // Of 8 kHz, and taken for one of 48.
    expect(measure(bytes)).toBeWithin(330, 2_140);
  });

  test("of an MP4 whose fragments claim many samples in no bytes is found at once", () => {
    const run = box("trun", words(0, 0xffff_ffff));
    const runs = Buffer.concat(Array.from({ length: 100_000 }, () => run));
    const elapsedMs = startStopwatch();
    measure(
      Buffer.concat([
        recording("fragmented.mp4"),
        box("moof", box("traf", box("tfhd", words(0, 1)), runs)),
      ]),
    );
    expect(elapsedMs()).toBeLessThan(2_000);
  });

  test("of an MP4 whose tables are empty is none", () => {
    const handler = box("hdlr", words(0, 0), Buffer.from("soun"));
    const tables = [box("stsc"), box("stco"), box("stts"), box("stsz"), box("trun"), box("tfhd")];
    const moov = box("moov", box("trak", handler, ...tables));
    expect(measure(Buffer.concat([box("ftyp", words(0)), moov]))).toBeUndefined();
  });

  test("of Vorbis is not that of its last page alone", () => {
    const bytes = Buffer.from(recording("vorbis.ogg"));
    bytes.writeBigInt64LE(1n, bytes.lastIndexOf("OggS") + 6);
    expect(measure(bytes)!).toBeGreaterThan(500);
  });

  test("of FLAC is by the rate that its frames state, and counts frames of every kind", () => {
    const lying = patched("a.flac", "fLaC", 18, [0x9f, 0xff, 0xf0]);
    expect(measure(lying)).toBeWithin(1_990, 2_140);
  });

  test("of WebM is that of its packets, whatever its clock claims", () => {
    const bytes = patched("a.webm", Buffer.from([0x2a, 0xd7, 0xb1]), 4, [0, 0, 1]);
    expect(measure(bytes)).toBeWithin(1_990, 2_140);
  });

  test("of Opus is that of its packets, whatever its pages claim", () => {
    const bytes = Buffer.from(recording("opus.ogg"));
    for (let at = bytes.indexOf("OggS"); at >= 0; at = bytes.indexOf("OggS", at + 4)) {
      bytes.writeBigInt64LE(1n, at + 6);
    }
    expect(measure(bytes)).toBeWithin(1_990, 2_140);
  });

  test("counts frames behind tags of any size, and none where the tags hold everything", () => {
    const tag = (size: number) =>
      Buffer.from([
        0x49,
        0x44,
        0x33,
        4,
        0,
        0,
        ...[21, 14, 7, 0].map((bits) => (size >> bits) & 127),
      ]);
    const music = recording("a.mp3");
    const tagged = Buffer.concat([tag(300_000), Buffer.alloc(300_000, 0xff), music]);
    expect(measure(tagged)).toBe(measure(music));
    expect(measure(Buffer.concat([tag(268_435_455), music]))).toBeUndefined();
    expect(measure(Buffer.concat([...Array.from({ length: 50_000 }, () => tag(0)), music]))).toBe(
      measure(music),
    );
  });

  test.each<[string, Buffer]>([
    ["nothing", Buffer.alloc(0)],
    ["zeros", Buffer.alloc(100_000)],
    ["HTML", Buffer.from("<!doctype html><p>Not found</p>".repeat(1_000))],
    [
      "HTML behind a tag",
      Buffer.concat([Buffer.from("ID3\x04\0\0\0\0\0\0"), Buffer.from("<p>".repeat(999))]),
    ],
    ["a WAV without data", recording("a.wav").subarray(0, 40)],
    ["a WAV of no channels", patched("a.wav", "fmt ", 10, [0, 0])],
    ["a WAV of an unknown format", patched("a.wav", "fmt ", 8, [0x99, 0x09])],
    ["an MP4 of pictures alone", patched("a.m4a", "soun", 0, [...Buffer.from("vide")])],
  ])("is none: %s", (_, bytes) => {
    expect(measure(bytes)).toBeUndefined();
  });

  test("of hostile bytes is found in a bounded time, and never throws", () => {
    const heads = NAMES.map((name) => recording(name).subarray(0, 200));
    const fills = [0xff, 0x00, 0x1a, 0x80, 0xa3].map((byte) => Buffer.alloc(4_000_000, byte));
    const random = Buffer.alloc(4_000_000);
    for (let at = 0, seed = 7; at < random.length; at++) {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
      random[at] = seed >>> 16;
    }
    const sinceMs = performance.now();
    for (const head of heads) {
      for (const fill of [...fills, random]) measure(Buffer.concat([head, fill]));
    }
    expect(performance.now() - sinceMs).toBeLessThan(60_000);
  }, 120_000);
});
