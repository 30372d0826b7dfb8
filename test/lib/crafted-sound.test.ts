import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { measureSound } from "../../src/lib/sound/measure-sound.ts";
import {
  AAC_SAMPLES,
  AAC_SETTINGS,
  ADTS_FRAMES,
  adtsFrame,
  block,
  box,
  CRAFTED_SECONDS,
  cluster,
  description,
  element,
  esds,
  FLAC_FRAMES,
  flacFrame,
  flacHeading,
  LOW_FRAME,
  LOW_FRAMES,
  MP3_FRAME,
  MP3_FRAMES,
  matroska,
  matroskaTrack,
  mp4,
  OPUS_PACKET,
  OPUS_SIX,
  oggChecksum,
  oggOpus,
  oggPage,
  opusHead,
  opusPages,
  opusTags,
  programStream,
  repeated,
  SLOW_FRAME,
  SLOW_FRAMES,
  trak,
  wav,
  words,
} from "../support/crafted-sound.ts";

const TRUE_MS = CRAFTED_SECONDS * 1_000;

function lengthOf(bytes: Buffer) {
  return measureSound({
    sizeBytes: bytes.length,
    readInto: (buffer, position) => bytes.copy(buffer, 0, position),
  });
}

const vorbis = readFileSync(`${import.meta.dir}/../fixtures/audio/vorbis.ogg`);

/** The pages of a recording, and how many of them hold headings. */
function vorbisPages(): { headings: Buffer; sound: Buffer } {
  const starts: number[] = [];
  for (let at = 0; at >= 0; at = vorbis.indexOf("OggS", at + 4)) starts.push(at);
  const pages = starts.map((at, page) => vorbis.subarray(at, starts[page + 1]));
  return { headings: Buffer.concat(pages.slice(0, 2)), sound: Buffer.concat(pages.slice(2)) };
}

/** 2 seconds, 150 times, whose pages all state the position 1. */
function longVorbis(): Buffer {
  const { headings, sound } = vorbisPages();
  const pages: Buffer[] = [];
  for (let at = 0; at < sound.length; ) {
    const next = sound.indexOf("OggS", at + 4);
    const page = Buffer.from(sound.subarray(at, next < 0 ? undefined : next));
    page.writeBigUInt64LE(1n, 6);
    page[5] = 0;
    pages.push(oggChecksum(page));
    at = next < 0 ? sound.length : next;
  }
  return Buffer.concat([headings, repeated(150, () => Buffer.concat(pages))]);
}

/** Lacing of Vorbis's three headings, as a codec's own description. */
function vorbisPrivate(): Buffer {
  const at = vorbis.indexOf("\x01vorbis");
  const identification = vorbis.subarray(at, at + 30);
  const comment = vorbis.indexOf("\x03vorbis");
  const setup = vorbis.indexOf("\x05vorbis");
  const end = vorbis.indexOf("OggS", setup);
  const comments = vorbis.subarray(comment, setup);
  const sizes = [...Array(Math.floor(comments.length / 255)).fill(255), comments.length % 255];
  const lacing = Buffer.from([2, 30, ...sizes]);
  return Buffer.concat([lacing, identification, comments, vorbis.subarray(setup, end)]);
}

const opusClusters = (timeOf: (at: number) => number) =>
  Array.from({ length: 300 }, (_, at) =>
    cluster(timeOf(at), ...Array.from({ length: 50 }, () => block(OPUS_PACKET))),
  );
const opusTrack = matroskaTrack("A_OPUS");
const flac = repeated(FLAC_FRAMES, (at) => flacFrame(at));
const pcm = Buffer.alloc(CRAFTED_SECONDS * 32_000, 3);
const mp3 = repeated(MP3_FRAMES, () => MP3_FRAME);
const aac = repeated(ADTS_FRAMES, () => adtsFrame(100));
const alacCookie = box("alac", words(0, 4_096, 0, 0, 0, 0, 44_100));

describe("a sound of 300 seconds is measured to 1 %", () => {
  test.each<[string, () => Buffer]>([
    ["MP3 at 128 kbit/s", () => mp3],
    ["MP3 at 8 kbit/s", () => repeated(LOW_FRAMES, () => LOW_FRAME)],
    ["MPEG-2.5 of 8 kHz", () => repeated(SLOW_FRAMES, () => SLOW_FRAME)],
    ["AAC in ADTS", () => aac],
    ["Ogg Opus", () => oggOpus(opusPages(300))],
    ["Opus at 6 kbit/s", () => oggOpus(repeated(2_500, () => oggPage([OPUS_SIX])))],
    ["FLAC", () => Buffer.concat([flacHeading(), flac])],
    ["WAV", () => wav(pcm)],
    ["MP3 in WAV", () => wav(mp3, { code: 0x55, rate: 44_100, bits: 0, blockBytes: 1 })],
    ["WebM", () => matroska([opusTrack], ...opusClusters((at) => at * 1_000))],
    ["MP4", () => mp4(AAC_SAMPLES, trak())],
    [
      "ALAC",
      () =>
        mp4(
          AAC_SAMPLES,
          trak({ samples: ADTS_FRAMES / 4, stsd: description("alac", 44_100, alacCookie) }),
        ),
    ],
    ["an MPEG program stream", () => programStream(mp3)],
    ["an MP3 with a cover of 100 KB", () => Buffer.concat([cover(100_000), mp3])],
    ["an MP3 with an APE tag of 100 KB", () => Buffer.concat([mp3, apeTag(100_000)])],
  ])("%s", (_, make) => {
    const length = lengthOf(make())!;
    expect(length.durationMs).toBeWithin(TRUE_MS * 0.99, TRUE_MS * 1.01);
    expect(length.longestMs).toBeWithin(TRUE_MS * 0.99, TRUE_MS * 1.1);
  });
});

/** JPEG has no two bytes that begin a frame. */
function cover(length: number): Buffer {
  const sizes = [21, 14, 7, 0].map((bits) => (length >> bits) & 127);
  return Buffer.concat([
    Buffer.from([0x49, 0x44, 0x33, 4, 0, 0, ...sizes]),
    Buffer.alloc(length, 7),
  ]);
}

function apeTag(length: number): Buffer {
  const footer = Buffer.alloc(32);
  footer.write("APETAGEX");
  footer.writeUInt32LE(2_000, 8);
  footer.writeUInt32LE(length, 12);
  return Buffer.concat([Buffer.alloc(length - 32, 7), footer]);
}

const NUL = Buffer.from([0]);
const valid24 = Buffer.concat([
  Buffer.from([22, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x10, 0]),
  Buffer.from([0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71]),
]);

/** Each plays 300 seconds or more in some decoder. */
const CRAFTED: [string, () => Buffer][] = [
  [
    "MP3 with a NUL after each frame",
    () => repeated(MP3_FRAMES, () => Buffer.concat([MP3_FRAME, NUL])),
  ],
  [
    "MP3 of 8 kbit/s with a NUL after each frame",
    () => repeated(LOW_FRAMES, () => Buffer.concat([LOW_FRAME, NUL])),
  ],
  [
    "MP3 whose frames alternate between two rates",
    () =>
      repeated(MP3_FRAMES * 1.05, (at) =>
        at % 2
          ? MP3_FRAME
          : Buffer.concat([Buffer.from([0xff, 0xfb, 0x94]), MP3_FRAME.subarray(3, 384)]),
      ),
  ],
  [
    "MP3 inside of frames of ADTS",
    () =>
      repeated(MP3_FRAMES / 19, () =>
        Buffer.concat([
          adtsFrame(8_000).subarray(0, 7),
          ...Array(19).fill(MP3_FRAME),
          Buffer.alloc(70),
        ]),
      ),
  ],
  [
    "MP3 of low rate inside of frames of layer I",
    () =>
      repeated(LOW_FRAMES / 20, () =>
        Buffer.concat([
          Buffer.from([0xff, 0xff, 0xe8, 0x40]),
          ...Array(20).fill(LOW_FRAME),
          Buffer.alloc(188),
        ]),
      ),
  ],
  [
    "MP3 with a tag in the middle that claims the rest",
    () =>
      Buffer.concat([
        MP3_FRAME,
        MP3_FRAME,
        Buffer.from([0x49, 0x44, 0x33, 4, 0, 0, 127, 127, 127, 127]),
        mp3,
      ]),
  ],
  [
    "MP3 after a tag whose size no decoder reads",
    () => Buffer.concat([Buffer.from([0x49, 0x44, 0x33, 4, 0, 0, 0, 0x80 | 100, 0, 0]), mp3]),
  ],
  [
    "two MP3 files in one",
    () =>
      Buffer.concat([mp3.subarray(0, mp3.length / 2), cover(1_000), mp3.subarray(mp3.length / 2)]),
  ],
  [
    "ADTS with a NUL after each frame",
    () => repeated(ADTS_FRAMES, () => Buffer.concat([adtsFrame(100), NUL])),
  ],
  ["ADTS with four raw blocks a frame", () => repeated(ADTS_FRAMES / 4, () => adtsFrame(400, 4))],
  ["Ogg Opus whose pages state 1", () => oggOpus(opusPages(300, { granule: 1 }))],
  [
    "Ogg Opus of 120 ms a packet whose pages state 1",
    () => oggOpus(repeated(2_500, () => oggPage([OPUS_SIX]))),
  ],
  [
    "Ogg Opus whose second page claims to begin a stream",
    () => oggOpus(Buffer.concat([oggPage([OPUS_PACKET], { flags: 2 }), opusPages(300)])),
  ],
  [
    "Ogg Opus with headings before each two packets",
    () => repeated(7_500, () => Buffer.concat([opusHead(), oggPage([OPUS_PACKET, OPUS_PACKET])])),
  ],
  [
    "Ogg Opus inside of a page with a wrong checksum",
    () =>
      Buffer.concat([
        opusHead(),
        opusTags(),
        ...Array.from({ length: 300 }, () => {
          const inner = opusPages(1);
          const trap = oggPage([Buffer.concat([inner, Buffer.alloc(100)])], { isWrong: true });
          return trap;
        }),
      ]),
  ],
  [
    "Ogg Opus whose packets end where no page continues",
    () =>
      oggOpus(
        repeated(2_500, () =>
          oggPage([OPUS_SIX, Buffer.alloc(255)], { segments: [OPUS_SIX.length, 255] }),
        ),
      ),
  ],
  [
    "Ogg of 100 streams, one after the other",
    () => repeated(100, (at) => oggOpus(opusPages(3, { serial: at }), at)),
  ],
  ["Vorbis whose pages state 1", () => longVorbis()],
  [
    "Vorbis in Matroska at time 0",
    () =>
      matroska(
        [matroskaTrack("A_VORBIS", vorbisPrivate())],
        cluster(0, ...Array.from({ length: 10_400 }, () => block(LONG_PACKET))),
      ),
  ],
  ["WebM whose blocks are all at time 0", () => matroska([opusTrack], ...opusClusters(() => 0))],
  [
    "WebM with laced blocks at time 0",
    () =>
      matroska(
        [opusTrack],
        cluster(
          0,
          ...Array.from({ length: 1_500 }, () =>
            block(Buffer.concat([Buffer.from([9]), ...Array(10).fill(OPUS_PACKET)]), 0, 0x84),
          ),
        ),
      ),
  ],
  [
    "WebM with the sound in the second track",
    () => matroska([matroskaTrack("A_OPUS", undefined, 2), opusTrack], ...opusClusters(() => 0)),
  ],
  [
    "AAC in Matroska at time 0",
    () =>
      matroska(
        [matroskaTrack("A_AAC", Buffer.from(AAC_SETTINGS))],
        cluster(
          0,
          ...Array.from({ length: Math.ceil(ADTS_FRAMES) }, () =>
            block(AAC_SAMPLES.subarray(0, 100)),
          ),
        ),
      ),
  ],
  ["MP4 whose samples last a tick", () => mp4(AAC_SAMPLES, trak({ ticks: 1 }))],
  [
    "MP4 whose description claims another rate",
    () =>
      mp4(AAC_SAMPLES, trak({ ticks: 1, stsd: description("mp4a", 65_535, esds(AAC_SETTINGS)) })),
  ],
  [
    "MP4 with the sound in the second track",
    () => mp4(AAC_SAMPLES, trak({ samples: 10, id: 2 }), trak({ ticks: 1 })),
  ],
  [
    "MP4 with the sound in a track of user data",
    () => mp4(AAC_SAMPLES, trak({ samples: 10, id: 2 }), box("udta", trak({ ticks: 1 }))),
  ],
  ["fragmented MP4 whose samples last a tick", () => fragmented()],
  [
    "FLAC with another heading in the first frame",
    () => Buffer.concat([flacHeading(), flacFrame(0, [0xf8, 0xc4, 0x08]), flac]),
  ],
  [
    "FLAC with frames of several sizes",
    () =>
      Buffer.concat([
        flacHeading(),
        repeated(FLAC_FRAMES * 2, (at) => flacFrame(at % 2_000, [0xf9, 0xb5, 0x08])),
      ]),
  ],
  ["FLAC that claims another rate", () => Buffer.concat([flacHeading(655_350), flac])],
  ["WAV with a wrong rate of bytes", () => wav(pcm, { byteRate: 32_000_000 })],
  ["WAV with a wrong size of blocks", () => wav(pcm, { blockBytes: 200 })],
  ["WAV whose data claims no bytes", () => wav(pcm, {}, undefined, 0)],
  [
    "WAV whose samples have fewer valid bits",
    () => wav(pcm.subarray(0, pcm.length / 2), { code: 0xfffe, bits: 16 }, valid24),
  ],
  ["MP3 in a WAV that claims samples", () => wav(repeated(LOW_FRAMES, () => LOW_FRAME))],
  [
    "a program stream of MP3 with a NUL after each frame",
    () => programStream(repeated(MP3_FRAMES, () => Buffer.concat([MP3_FRAME, NUL]))),
  ],
];

const LONG_PACKET = Buffer.alloc(40, 0);

function fragmented(): Buffer {
  const count = Math.ceil(ADTS_FRAMES);
  const head = Buffer.concat([
    box("ftyp", Buffer.from("M4A "), words(0, 0)),
    box("moov", trak({ samples: 0 }), box("mvex", box("trex", words(0, 1, 1, 1, 100, 0)))),
  ]);
  const run = box("trun", words(1, count, 100));
  return Buffer.concat([
    head,
    box("moof", box("traf", box("tfhd", words(0x020000, 1)), run)),
    box("mdat", AAC_SAMPLES),
  ]);
}

describe("a sound of 300 seconds counts as 300, whatever its container claims", () => {
  test.each(CRAFTED)("%s", (_, make) => {
    expect(lengthOf(make())!.durationMs).toBeGreaterThan(TRUE_MS * 0.99);
  });
});

describe("a file that decoders may read in two ways is rejected", () => {
  const ac3 = repeated(400, () => {
    const frame = Buffer.alloc(128, 0x33);
    frame.set([0x0b, 0x77, 0, 0, 0, 0x40]);
    return frame;
  });
  const hidden = matroska([opusTrack], cluster(0, block(OPUS_PACKET)));
  test.each<[string, Buffer]>([
    ["AC-3 after a frame of MP3", Buffer.concat([MP3_FRAME, MP3_FRAME, ac3])],
    ["AC-3 in a WAV that claims samples", wav(ac3)],
    [
      "MP3 after which most is something else",
      Buffer.concat([mp3.subarray(0, 40_000), Buffer.alloc(40_000, 9)]),
    ],
    [
      "an Ogg with a stream of an unknown codec",
      Buffer.concat([
        oggOpus(opusPages(1)),
        oggPage([Buffer.from("CELT    ")], { flags: 2, serial: 9 }),
      ]),
    ],
    ["Vorbis that begins again under its number", Buffer.concat([longVorbis(), vorbis])],
    [
      "WebM with an element that is longer than its cluster",
      Buffer.concat([hidden.subarray(0, -3), Buffer.from([0xec, 0x10, 0, 0]), hidden]),
    ],
    [
      "WebM with bytes between its clusters",
      Buffer.concat([
        matroska([opusTrack], cluster(0, block(OPUS_PACKET)), NUL, cluster(0, block(OPUS_PACKET))),
      ]),
    ],
    [
      "Matroska whose frames lack their beginnings",
      matroska(
        [
          element(
            "ae",
            element("d7", Buffer.from([1])),
            element("83", Buffer.from([2])),
            element("86", Buffer.from("A_OPUS")),
            element("6d80", Buffer.from([1])),
          ),
        ],
        cluster(0, block(OPUS_PACKET)),
      ),
    ],
    ["Matroska with AC-3", matroska([matroskaTrack("A_AC3")], cluster(0, block(ac3)))],
    [
      "MP4 that plays its sound again and again",
      mp4(
        AAC_SAMPLES,
        trak({ edits: box("elst", words(0, 2, 9_000, 0, 65_536, 9_000, 0, 65_536)) }),
      ),
    ],
    [
      "MP4 with a second table of sizes",
      mp4(AAC_SAMPLES, trak({ extra: [box("stsz", words(0, 100, 1))] })),
    ],
    [
      "MP4 with a box that is longer than its film",
      mp4(AAC_SAMPLES, words(90_000), Buffer.from("free"), trak()),
    ],
    ["MP4 with AC-3", mp4(AAC_SAMPLES, trak({ stsd: description("ac-3", 44_100) }))],
    [
      "MP4 of USAC, whose frames have several lengths",
      mp4(AAC_SAMPLES, trak({ stsd: description("mp4a", 44_100, esds([0xf9, 0x40, 0x44])) })),
    ],
    ["ADPCM of two bits a sample", wav(pcm, { code: 0x11, bits: 2, blockBytes: 256 })],
    ["AMR", Buffer.concat([Buffer.from("#!AMR\n"), repeated(1_000, () => Buffer.alloc(32, 0x3c))])],
  ])("%s", (_, bytes) => {
    expect(lengthOf(bytes)).toBeUndefined();
  });
});

test("several frames of AAC in one sample are within the hold", () => {
  const samples = ADTS_FRAMES / 16;
  const bytes = mp4(AAC_SAMPLES.subarray(0, samples * 700), trak({ samples, sampleBytes: 700 }));
  expect(lengthOf(bytes)!.longestMs).toBeGreaterThan(70_000);
});

test("25 MB of hostile bytes are measured in bounded time", () => {
  const fills = ["ff", "fffb9000", "fff8c900"].map((hex) =>
    Buffer.alloc(25_000_000, Buffer.from(hex, "hex")),
  );
  for (const head of [MP3_FRAME, flacHeading(), opusHead()]) {
    for (const fill of fills) {
      const since = process.cpuUsage().user;
      lengthOf(Buffer.concat([head, fill]));
      expect((process.cpuUsage().user - since) / 1_000).toBeLessThan(5_000);
    }
  }
}, 120_000);
