/** Sounds of 300 seconds, made frame by frame, in the forms that encoders write and in others. */

export const CRAFTED_SECONDS = 300;

export const repeated = (count: number, make: (at: number) => Uint8Array): Buffer =>
  Buffer.concat(Array.from({ length: Math.ceil(count) }, (_, at) => make(at)));

const padded = (head: readonly number[], length: number) =>
  Buffer.concat([Buffer.from(head), Buffer.alloc(length - head.length, 0x55)]);

/** 44.1 kHz at 128 kbit/s; 24 kHz at 8 kbit/s; 8 kHz at 8 kbit/s (MPEG-2.5). */
export const MP3_FRAME = padded([0xff, 0xfb, 0x90, 0x40], 417);
export const MP3_FRAMES = (CRAFTED_SECONDS * 44_100) / 1_152;
export const LOW_FRAME = padded([0xff, 0xf3, 0x14, 0x40], 24);
export const LOW_FRAMES = (CRAFTED_SECONDS * 24_000) / 576;
export const SLOW_FRAME = padded([0xff, 0xe3, 0x18, 0x40], 72);
export const SLOW_FRAMES = (CRAFTED_SECONDS * 8_000) / 576;

/** A frame of AAC at 44.1 kHz, mono, with so many raw blocks. */
export function adtsFrame(lengthBytes: number, blocks = 1, rateCode = 4): Buffer {
  const head = Buffer.from([0xff, 0xf1, 0x40 | (rateCode << 2), 0x40, 0, 0, 0xfc]);
  head[3] = 0x40 | (lengthBytes >> 11);
  head[4] = (lengthBytes >> 3) & 255;
  head[5] = ((lengthBytes & 7) << 5) | 0x1f;
  head[6] = 0xfc | (blocks - 1);
  return padded([...head], lengthBytes);
}
export const ADTS_FRAMES = (CRAFTED_SECONDS * 44_100) / 1_024;

const CRC_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let value = byte << 24;
  for (let bit = 0; bit < 8; bit++) value = value < 0 ? (value << 1) ^ 0x04c11db7 : value << 1;
  return value;
});

export function oggChecksum(page: Buffer): Buffer {
  page.writeUInt32LE(0, 22);
  let value = 0;
  for (const byte of page) value = (value << 8) ^ CRC_TABLE[((value >>> 24) ^ byte) & 255]!;
  page.writeUInt32LE(value >>> 0, 22);
  return page;
}

interface PageOptions {
  readonly serial?: number;
  readonly granule?: number;
  readonly flags?: number;
  readonly isWrong?: boolean;
  /** Lacing values, if they are not those of whole packets. */
  readonly segments?: readonly number[];
}

export function oggPage(packets: readonly Uint8Array[], options: PageOptions = {}): Buffer {
  const { serial = 7, granule = 1, flags = 0, isWrong = false } = options;
  const segments =
    options.segments ??
    packets.flatMap(({ length }) => [...Array(Math.floor(length / 255)).fill(255), length % 255]);
  const head = Buffer.alloc(27);
  head.write("OggS");
  head[5] = flags;
  head.writeBigUInt64LE(BigInt(granule), 6);
  head.writeUInt32LE(serial, 14);
  head[26] = segments.length;
  const page = oggChecksum(Buffer.concat([head, Buffer.from(segments), ...packets]));
  if (isWrong) page[22]! ^= 1;
  return page;
}

export const opusHead = (serial = 7) =>
  oggPage([Buffer.concat([Buffer.from("OpusHead\x01\x01"), Buffer.alloc(9)])], {
    flags: 2,
    granule: 0,
    serial,
  });
export const opusTags = (serial = 7) =>
  oggPage([Buffer.concat([Buffer.from("OpusTags"), Buffer.alloc(8)])], { granule: 0, serial });
/** 20 ms; and 120 ms in six frames, at 6 kbit/s. */
export const OPUS_PACKET = padded([0x78], 60);
export const OPUS_SIX = padded([0x7b, 0x06], 90);

export function oggOpus(pages: Buffer, serial = 7): Buffer {
  return Buffer.concat([opusHead(serial), opusTags(serial), pages]);
}

/** Pages of ten packets of 20 ms, and of one of 120 ms. */
export const opusPages = (seconds: number, options: PageOptions = {}) =>
  repeated(seconds / 0.2, (at) =>
    oggPage(Array(10).fill(OPUS_PACKET), { granule: (at + 1) * 9_600, ...options }),
  );

const element = (id: string, ...parts: Uint8Array[]) => {
  const body = Buffer.concat(parts);
  const size = Buffer.alloc(8);
  size.writeBigUInt64BE(BigInt(body.length) | 0x0100000000000000n);
  return Buffer.concat([Buffer.from(id, "hex"), size, body]);
};

export { element };

export function matroskaTrack(
  codec: string,
  codecPrivate: Buffer = Buffer.alloc(0),
  number = 1,
): Buffer {
  return element(
    "ae",
    element("d7", Buffer.from([number])),
    element("83", Buffer.from([2])),
    element("86", Buffer.from(codec)),
    ...(codecPrivate.length > 0 ? [element("63a2", codecPrivate)] : []),
  );
}

/** A block without lacing, or with the sizes of its frames before them. */
export const block = (frame: Uint8Array, time = 0, flags = 0x80, number = 1) =>
  element("a3", Buffer.from([0x80 | number, time >> 8, time & 255, flags]), frame);

export function matroska(tracks: readonly Uint8Array[], ...clusters: Uint8Array[]): Buffer {
  return Buffer.concat([
    element("1a45dfa3", element("4282", Buffer.from("webm"))),
    element("18538067", element("1654ae6b", ...tracks), ...clusters),
  ]);
}

export const cluster = (time: number, ...blocks: Uint8Array[]) =>
  element(
    "1f43b675",
    element("e7", Buffer.from([time >> 24, time >> 16, time >> 8, time])),
    ...blocks,
  );

export const words = (...values: number[]) => {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [at, value] of values.entries()) bytes.writeUInt32BE(value >>> 0, at * 4);
  return bytes;
};

export const box = (name: string, ...parts: Uint8Array[]) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([words(body.length + 8), Buffer.from(name, "latin1"), body]);
};

/** A description of a track of sound; AAC of low complexity at 44.1 kHz, mono. */
export function description(name: string, rate: number, ...parts: Uint8Array[]): Buffer {
  const entry = Buffer.alloc(28);
  entry.writeUInt16BE(1, 6);
  entry.writeUInt16BE(1, 16);
  entry.writeUInt16BE(16, 18);
  entry.writeUInt16BE(rate, 24);
  return box("stsd", words(0, 1), box(name, entry, ...parts));
}

export const esds = (settings: readonly number[], type = 0x40) => {
  const own = Buffer.from([5, settings.length, ...settings]);
  const decoder = Buffer.concat([Buffer.from([type, 0x15]), Buffer.alloc(11), own]);
  const stream = Buffer.concat([Buffer.from([0, 1, 0, 4, decoder.length]), decoder]);
  return box("esds", words(0), Buffer.from([3, stream.length]), stream);
};
export const AAC_SETTINGS = [0x12, 0x08];

interface TrackOptions {
  readonly stsd?: Buffer;
  readonly ticks?: number;
  readonly scale?: number;
  readonly sampleBytes?: number;
  readonly samples?: number;
  readonly offset?: number;
  readonly edits?: Buffer;
  readonly kind?: string;
  readonly id?: number;
  readonly extra?: readonly Uint8Array[];
}

export function trak(options: TrackOptions = {}): Buffer {
  const { ticks = 1_024, scale = 44_100, samples = ADTS_FRAMES, id = 1 } = options;
  const count = Math.ceil(samples);
  const stbl = box(
    "stbl",
    options.stsd ?? description("mp4a", 44_100, esds(AAC_SETTINGS)),
    box("stts", words(0, 1, count, ticks)),
    box("stsc", words(0, 1, 1, count, 1)),
    box("stsz", words(0, options.sampleBytes ?? 100, count)),
    box("stco", words(0, 1, options.offset ?? 28)),
    ...(options.extra ?? []),
  );
  return box(
    "trak",
    box("tkhd", words(0, 0, 0, id, 0)),
    ...(options.edits === undefined ? [] : [box("edts", options.edits)]),
    box(
      "mdia",
      box("mdhd", words(0, 0, 0, scale, count * ticks)),
      box("hdlr", words(0, 0), Buffer.from(options.kind ?? "soun"), Buffer.alloc(12)),
      box("minf", stbl),
    ),
  );
}

/** The samples come first, from byte 28 on. */
export function mp4(samples: Uint8Array, ...moov: Uint8Array[]): Buffer {
  return Buffer.concat([
    box("ftyp", Buffer.from("M4A "), words(0, 0)),
    box("mdat", samples),
    box("moov", ...moov),
  ]);
}

export const AAC_SAMPLES = Buffer.alloc(Math.ceil(ADTS_FRAMES) * 100, 0x21);

function crc8(bytes: Uint8Array): number {
  let value = 0;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit++) value = value & 0x80 ? (value << 1) ^ 7 : value << 1;
    value &= 255;
  }
  return value;
}

/** A frame of 4,096 samples of 16 kHz, mono, 16 bits; with another form in its heading if `form` says so. */
export function flacFrame(at: number, form = [0xf8, 0xc5, 0x08]): Buffer {
  const number = at < 128 ? [at] : [0xc0 | (at >> 6), 0x80 | (at & 63)];
  const head = [0xff, ...form, ...number];
  return Buffer.concat([
    Buffer.from([...head, crc8(Buffer.from(head))]),
    Buffer.alloc(4_200, 0x11),
  ]);
}
export const FLAC_FRAMES = (CRAFTED_SECONDS * 16_000) / 4_096;

/** The mark, then what describes the stream. */
export const flacHeading = (rate = 16_000) => {
  const information = Buffer.alloc(34);
  information.writeUInt16BE(4_096, 0);
  information.writeUInt16BE(4_096, 2);
  information.writeUInt32BE(((rate << 12) | (15 << 4)) >>> 0, 10);
  return Buffer.concat([Buffer.from("fLaC"), Buffer.from([0x80, 0, 0, 34]), information]);
};

export function wav(
  data: Uint8Array,
  { rate = 16_000, channels = 1, bits = 16, blockBytes = 2, byteRate = 32_000, code = 1 } = {},
  extra = Buffer.alloc(0),
  dataBytes = data.length,
): Buffer {
  const format = Buffer.alloc(16);
  format.writeUInt16LE(code, 0);
  format.writeUInt16LE(channels, 2);
  format.writeUInt32LE(rate, 4);
  format.writeUInt32LE(byteRate, 8);
  format.writeUInt16LE(blockBytes, 12);
  format.writeUInt16LE(bits, 14);
  const little = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value >>> 0);
    return bytes;
  };
  return Buffer.concat([
    ...[Buffer.from("RIFF"), little(data.length + 36), Buffer.from("WAVEfmt ")],
    ...[little(16 + extra.length), format, extra, Buffer.from("data"), little(dataBytes), data],
  ]);
}

/** A program stream whose packets of sound each have 2,000 bytes. */
export function programStream(sound: Buffer): Buffer {
  const pack = Buffer.from([0, 0, 1, 0xba, 0x44, 0, 4, 0, 4, 1, 0, 0, 3, 0xf8]);
  return repeated(sound.length / 2_000, (at) => {
    const payload = sound.subarray(at * 2_000, (at + 1) * 2_000);
    const head = Buffer.from([0, 0, 1, 0xc0, 0, 0, 0x80, 0x80, 5, 0x21, 0, 1, 0, 1]);
    head.writeUInt16BE(payload.length + 8, 4);
    return Buffer.concat([pack, head, payload]);
  });
}
