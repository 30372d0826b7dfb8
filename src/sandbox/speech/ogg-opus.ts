import { SAMPLE_RATE, type SpeechEncoder, type SpeechFacts } from "./speech-encoder.ts";
import { vorbisComments } from "./spoken-text.ts";

/** Samples of a frame of 20 ms. */
const FRAME_SAMPLES = 480;
/** Opus counts samples at 48 kHz, whatever the input rate is. */
const GRANULES_A_SAMPLE = 48_000 / SAMPLE_RATE;
/** Look-ahead of libopus, in samples at 48 kHz. */
const PRE_SKIP = 312;
/** Numbers of these settings in libopus. */
const SET_BITRATE = 4002;
const SET_COMPLEXITY = 4010;
/** Effort of the encoder, from 0 to 10. The default takes three times as long. */
const COMPLEXITY = 2;
const BITS_A_SECOND = 32_000;
const FIRST_PAGE = 2;
const LAST_PAGE = 4;
const PAGE_HEAD_BYTES = 27;

/** Returns an encoder of Ogg files with Opus (RFC 7845), with one page per frame. It uses libopus. */
export async function opusEncoder(facts: SpeechFacts): Promise<SpeechEncoder> {
  const { totalSamples, comment } = facts;
  // Importing compiles the module, so only speech in this format waits for it.
  const { Encoder } = await import("@evan/opus/wasm/index.mjs");
  const opus = new Encoder({ channels: 1, sample_rate: SAMPLE_RATE, application: "voip" });
  opus.ctl(SET_BITRATE, BITS_A_SECOND);
  opus.ctl(SET_COMPLEXITY, COMPLEXITY);
  const lastGranule = PRE_SKIP + totalSamples * GRANULES_A_SAMPLE;
  let page = 0;
  let samplesSoFar = 0;
  const frame = new Uint8Array(FRAME_SAMPLES * 2);
  const view = new DataView(frame.buffer);
  return {
    frameSamples: FRAME_SAMPLES,
    trailingSamples: PRE_SKIP / GRANULES_A_SAMPLE,
    head: () =>
      Buffer.concat([
        oggPage(opusHead(), { number: page++, granule: 0, flags: FIRST_PAGE }),
        oggPage(opusTags(comment), { number: page++, granule: 0, flags: 0 }),
      ]),
    encode(samples, isLast) {
      samplesSoFar += samples.length;
      frame.fill(0);
      for (const [index, sample] of samples.entries()) view.setInt16(index * 2, sample, true);
      const granule = Math.min(samplesSoFar * GRANULES_A_SAMPLE, lastGranule);
      const packet = opus.encode(frame);
      return oggPage(packet, { number: page++, granule, flags: isLast ? LAST_PAGE : 0 });
    },
    close: () => opus.drop(),
  };
}

function opusHead(): Buffer {
  const head = Buffer.alloc(19);
  head.write("OpusHead", "latin1");
  // Version, channels.
  head.set([1, 1], 8);
  head.writeUInt16LE(PRE_SKIP, 10);
  head.writeUInt32LE(SAMPLE_RATE, 12);
  return head;
}

function opusTags(comment: string): Buffer {
  return Buffer.concat([Buffer.from("OpusTags", "latin1"), vorbisComments(comment)]);
}

interface Page {
  readonly number: number;
  /** Granule position of its last sample. */
  readonly granule: number;
  readonly flags: number;
}

/** Returns a page with one whole packet of at most 65,024 bytes (RFC 3533). There is one stream, number 1. */
function oggPage(packet: Uint8Array, { number, granule, flags }: Page): Buffer {
  const segments = Math.floor(packet.length / 255) + 1;
  const page = Buffer.alloc(PAGE_HEAD_BYTES + segments + packet.length);
  page.write("OggS", "latin1");
  page[5] = flags;
  page.writeBigUInt64LE(BigInt(granule), 6);
  page.writeUInt32LE(1, 14);
  page.writeUInt32LE(number, 18);
  page[26] = segments;
  page.fill(255, PAGE_HEAD_BYTES, PAGE_HEAD_BYTES + segments - 1);
  page[PAGE_HEAD_BYTES + segments - 1] = packet.length % 255;
  page.set(packet, PAGE_HEAD_BYTES + segments);
  page.writeUInt32LE(oggSum(page), 22);
  return page;
}

/** Returns zlib's CRC without reflection, with initial value 0. */
function oggSum(page: Uint8Array): number {
  let sum = 0;
  for (const byte of page) sum = ((sum << 8) ^ SUMS[(sum >>> 24) ^ byte]!) >>> 0;
  return sum;
}

const SUMS = Uint32Array.from({ length: 256 }, (_, index) => {
  let sum = index << 24;
  for (let bit = 0; bit < 8; bit++) sum = sum < 0 ? (sum << 1) ^ 0x04c11db7 : sum << 1;
  return sum >>> 0;
});
