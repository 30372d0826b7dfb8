import { PAUSE, type Phone } from "./phones.ts";
import { SAMPLE_RATE } from "./speech-encoder.ts";
import type { SpokenPhone, Utterance } from "./utterance.ts";

interface Voice {
  readonly pitchHz: number;
  /** Of the formants: a shorter throat has higher ones. */
  readonly scale: number;
}

/** OpenAI's first voices, from low to high. */
const VOICES: Readonly<Record<string, Voice>> = {
  onyx: { pitchHz: 88, scale: 0.94 },
  echo: { pitchHz: 105, scale: 0.97 },
  alloy: { pitchHz: 128, scale: 1 },
  fable: { pitchHz: 150, scale: 1.04 },
  nova: { pitchHz: 195, scale: 1.13 },
  shimmer: { pitchHz: 220, scale: 1.17 },
};
const LOWEST_HZ = 90;
const HIGHEST_HZ = 230;

/** Any other name has a pitch of its own. */
function voiceOf(name: string): Voice {
  const known = Object.hasOwn(VOICES, name) ? VOICES[name] : undefined;
  if (known !== undefined) return known;
  const share = (Bun.hash.xxHash32(name) % 1000) / 1000;
  return { pitchHz: LOWEST_HZ + (HIGHEST_HZ - LOWEST_HZ) * share, scale: 0.95 + 0.22 * share };
}

/** Samples between two steps of the mouth. */
const STEP_SAMPLES = 120;
/** How far it gets in a step. */
const STEP_SHARE = 0.35;
const FORMANT_WIDTHS_HZ = [70, 100, 150, 250] as const;
const FOURTH_FORMANT_HZ = 3500;
const LOUDNESS = 9_000;
/** Lips send higher tones out better. */
const LIPS = 0.6;
const MAX_SAMPLE = 32_000;

/**
 * Speech from an utterance, by formants: pulses of a voice and noise, shaped by resonators that stand for
 * throat and mouth. The same utterance and voice give the same samples.
 */
export class Synthesiser {
  readonly #phones: readonly SpokenPhone[];
  readonly #voice: Voice;
  readonly #formants = FORMANT_WIDTHS_HZ.map(() => new Resonator());
  readonly #mouth = new Resonator();
  #at = 0;
  #samplesInPhone = 0;
  #samplesToStep = 0;
  #phase = 0;
  #noiseState = 1;
  #throat = 0;
  #now: Phone = PAUSE;
  #pitch = 1;

  constructor({ phones }: Utterance, voice: string) {
    this.#phones = phones;
    this.#voice = voiceOf(voice);
  }

  /** The next samples; silence where the utterance is over. */
  fill(samples: Int16Array): void {
    for (let at = 0; at < samples.length; at++) samples[at] = this.#next();
  }

  #next(): number {
    let current = this.#phones[this.#at];
    while (current !== undefined && this.#samplesInPhone >= current.samples) {
      current = this.#phones[++this.#at];
      this.#samplesInPhone = 0;
    }
    this.#samplesInPhone++;
    if (this.#samplesToStep-- === 0) {
      this.#samplesToStep = STEP_SAMPLES - 1;
      this.#step(current?.phone ?? PAUSE, current?.pitch ?? 1);
    }
    const { voice, breath, noise } = this.#now;
    const hiss = this.#noise();
    let throat = voice * this.#pulse() + breath * hiss * 0.25;
    for (const formant of this.#formants) throat = formant.pass(throat);
    const lips = throat - LIPS * this.#throat;
    this.#throat = throat;
    const sample = LOUDNESS * (lips + noise * this.#mouth.pass(hiss) * 0.4);
    return Math.max(-MAX_SAMPLE, Math.min(MAX_SAMPLE, Math.round(sample)));
  }

  /** Moves the mouth towards a phone. */
  #step(to: Phone, pitch: number): void {
    const from = this.#now;
    const towards = (before: number, after: number) => before + (after - before) * STEP_SHARE;
    const [first, second, third] = from.formants.map((hz, at) => towards(hz, to.formants[at]!));
    this.#now = {
      ...to,
      formants: [first!, second!, third!],
      voice: towards(from.voice, to.voice),
      breath: towards(from.breath, to.breath),
      noise: towards(from.noise, to.noise),
    };
    this.#pitch = towards(this.#pitch, pitch);
    const { scale } = this.#voice;
    for (const [at, formant] of this.#formants.entries()) {
      const hz = this.#now.formants[at] ?? FOURTH_FORMANT_HZ;
      formant.tune(hz * scale, FORMANT_WIDTHS_HZ[at]!);
    }
    this.#mouth.tune(to.noiseHz, to.noiseWidthHz);
  }

  /** The stream of air through the glottis, as its changes: opens slowly, closes fast, rests. */
  #pulse(): number {
    this.#phase += (this.#voice.pitchHz * this.#pitch) / SAMPLE_RATE;
    if (this.#phase >= 1) this.#phase -= 1;
    const phase = this.#phase;
    if (phase < 0.4) return 0.5 * Math.sin((Math.PI * phase) / 0.4);
    return phase < 0.56 ? -1.25 * Math.sin((Math.PI * (phase - 0.4)) / 0.32) : 0;
  }

  /** Between -1 and 1, always the same course. */
  #noise(): number {
    let state = this.#noiseState;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#noiseState = state;
    return state / 2 ** 31;
  }
}

/** A filter of the second order that lets one frequency pass best. */
class Resonator {
  #gain = 1;
  #first = 0;
  #second = 0;
  #last = 0;
  #beforeLast = 0;

  tune(hz: number, widthHz: number): void {
    const radius = Math.exp((-Math.PI * widthHz) / SAMPLE_RATE);
    const centre = Math.min(hz, SAMPLE_RATE * 0.45);
    this.#first = 2 * radius * Math.cos((2 * Math.PI * centre) / SAMPLE_RATE);
    this.#second = -radius * radius;
    this.#gain = 1 - this.#first - this.#second;
  }

  pass(sample: number): number {
    const passed = this.#gain * sample + this.#first * this.#last + this.#second * this.#beforeLast;
    this.#beforeLast = this.#last;
    this.#last = passed;
    return passed;
  }
}
