import { PAUSE, type Phone, phonesOfWord } from "./phones.ts";
import { SAMPLE_RATE } from "./speech-encoder.ts";

/** A phone with its duration and pitch. */
export interface SpokenPhone {
  readonly phone: Phone;
  readonly samples: number;
  /** Factor of the voice's pitch. */
  readonly pitch: number;
}

/** The position of a word in the speech, in samples. */
interface SpokenWord {
  readonly word: string;
  readonly start: number;
  readonly end: number;
  /** True for the last word of its sentence. */
  readonly endsSentence: boolean;
}

/** The sounds and words of a text. The length is known before the first sample is created. */
export interface Utterance {
  readonly phones: readonly SpokenPhone[];
  readonly words: readonly SpokenWord[];
  readonly totalSamples: number;
}

/** Longest speech, in seconds. Longer texts, mostly long numbers, are spoken faster. */
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

/** Returns the utterance of a text. @param speed 1 is normal, 2 is twice as fast */
export function utter(text: string, speed: number): Utterance {
  const sounds: Sound[] = [pause(EDGE_MS)];
  const positions: { word: string; from: number; to: number; endsSentence: boolean }[] = [];
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
      positions.push({ word, from, to: sounds.length, endsSentence });
      const isComma = /[,;:、，]$/u.test(word);
      sounds.push(pause(endsSentence ? SENTENCE_MS : isComma ? COMMA_MS : WORD_GAP_MS));
    }
  }
  const totalMs = sounds.reduce((sum, { durationMs }) => sum + durationMs, 0) / speed;
  const effectiveSpeed = speed * Math.max(1, totalMs / 1000 / MAX_SECONDS);
  const ends = [0];
  const phones = sounds.map(({ phone, durationMs, pitch }): SpokenPhone => {
    const samples = Math.round((durationMs / effectiveSpeed / 1000) * SAMPLE_RATE);
    ends.push(ends.at(-1)! + samples);
    return { phone, samples, pitch };
  });
  const words = positions.map(({ word, from, to, endsSentence }) => {
    return { word, start: ends[from]!, end: ends[to]!, endsSentence };
  });
  return { phones, words, totalSamples: ends.at(-1)! };
}

function pause(durationMs: number): Sound {
  return { phone: PAUSE, durationMs, pitch: 1 };
}

/** Returns the pitch factor at a share of a sentence. The voice falls in the course of a sentence. */
function pitchAt(share: number): number {
  return FIRST_PITCH + (LAST_PITCH - FIRST_PITCH) * share;
}
