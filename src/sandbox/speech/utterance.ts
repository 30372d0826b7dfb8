import { PAUSE, type Phone, phonesOfWord } from "./phones.ts";
import { SAMPLE_RATE } from "./speech-encoder.ts";

/** A phone in its place. */
export interface SpokenPhone {
  readonly phone: Phone;
  readonly samples: number;
  /** Of the voice's own pitch. */
  readonly pitch: number;
}

/** Where a word is in the speech, in samples. */
interface SpokenWord {
  readonly word: string;
  readonly start: number;
  readonly end: number;
  /** The last one of its sentence. */
  readonly endsSentence: boolean;
}

/** What is to be spoken. Its length is known before a sample is made. */
export interface Utterance {
  readonly phones: readonly SpokenPhone[];
  readonly words: readonly SpokenWord[];
  readonly totalSamples: number;
}

/** Text whose sounds would take longer is spoken faster: long numbers, mostly. */
const MAX_SECONDS = 1_200;
const WORD_GAP_MS = 35;
const COMMA_MS = 160;
const SENTENCE_MS = 320;
const EDGE_MS = 60;
const FIRST_PITCH = 1.12;
const LAST_PITCH = 0.86;
const QUESTION_PITCH = 1.3;

interface Sound {
  readonly phone: Phone;
  readonly durationMs: number;
  readonly pitch: number;
}

/** Speed 1 is normal, 2 is twice as fast. */
export function utter(text: string, speed: number): Utterance {
  const sounds: Sound[] = [pause(EDGE_MS)];
  const places: { word: string; from: number; to: number; endsSentence: boolean }[] = [];
  for (const sentence of text.match(/[^.!?。！？\n]+[.!?。！？\n]*|[.!?。！？\n]+/gu) ?? []) {
    const words = sentence.match(/\S+/gu) ?? [];
    const isQuestion = /[?？]/u.test(sentence);
    for (const [index, word] of words.entries()) {
      const endsSentence = index === words.length - 1;
      const isHigh = isQuestion && endsSentence;
      const pitch = isHigh ? QUESTION_PITCH : pitchAt(index / words.length);
      const from = sounds.length;
      for (const phone of phonesOfWord(word)) {
        sounds.push({ phone, durationMs: phone.durationMs, pitch });
      }
      places.push({ word, from, to: sounds.length, endsSentence });
      const isComma = /[,;:、，]$/u.test(word);
      sounds.push(pause(endsSentence ? SENTENCE_MS : isComma ? COMMA_MS : WORD_GAP_MS));
    }
  }
  const totalMs = sounds.reduce((sum, { durationMs }) => sum + durationMs, 0) / speed;
  const haste = speed * Math.max(1, totalMs / 1000 / MAX_SECONDS);
  const ends = [0];
  const phones = sounds.map(({ phone, durationMs, pitch }): SpokenPhone => {
    const samples = Math.round((durationMs / haste / 1000) * SAMPLE_RATE);
    ends.push(ends.at(-1)! + samples);
    return { phone, samples, pitch };
  });
  const words = places.map(({ word, from, to, endsSentence }) => {
    return { word, start: ends[from]!, end: ends[to]!, endsSentence };
  });
  return { phones, words, totalSamples: ends.at(-1)! };
}

function pause(durationMs: number): Sound {
  return { phone: PAUSE, durationMs, pitch: 1 };
}

/** The voice falls in the course of a sentence. */
function pitchAt(share: number): number {
  return FIRST_PITCH + (LAST_PITCH - FIRST_PITCH) * share;
}
