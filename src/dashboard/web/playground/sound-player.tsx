import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../components/controls.tsx";
import type { Sound } from "./answer.ts";

const SAMPLE_RATE = 24_000;
const BYTES_A_SAMPLE = 2;
const LARGEST_SAMPLE = 32_768;

/** Plays the sound of an answer. The page's policy loads no media, so the samples are played from memory. */
export function SoundPlayer({ sound }: { readonly sound: Sound }) {
  const playing = useRef<AudioContext>(undefined);
  const [isPlaying, setPlaying] = useState(false);
  const [fault, setFault] = useState<string>();
  const stop = () => {
    void playing.current?.close();
    playing.current = undefined;
    setPlaying(false);
  };
  useEffect(() => stop, []);
  const play = () => {
    try {
      const samples = samplesOf(sound.pieces);
      const context = new AudioContext({ sampleRate: SAMPLE_RATE });
      const buffer = context.createBuffer(1, Math.max(1, samples.length), SAMPLE_RATE);
      buffer.copyToChannel(samples, 0);
      const source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      source.onended = stop;
      source.start();
      playing.current = context;
      setPlaying(true);
    } catch {
      setFault("The sound cannot be played.");
    }
  };
  return (
    <div class="sound">
      <Button onClick={isPlaying ? stop : play}>{isPlaying ? "Stop sound" : "Play sound"}</Button>
      {fault && <span class="hint bad">{fault}</span>}
      {sound.transcript !== "" && <p class="message-text">{sound.transcript}</p>}
    </div>
  );
}

function samplesOf(pieces: readonly string[]): Float32Array<ArrayBuffer> {
  const bytes = pieces.map((piece) => Uint8Array.from(atob(piece), (char) => char.charCodeAt(0)));
  const joined = new Uint8Array(bytes.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const piece of bytes) {
    joined.set(piece, offset);
    offset += piece.length;
  }
  const view = new DataView(joined.buffer);
  const samples = new Float32Array(Math.floor(joined.length / BYTES_A_SAMPLE));
  for (let at = 0; at < samples.length; at++) {
    samples[at] = view.getInt16(at * BYTES_A_SAMPLE, true) / LARGEST_SAMPLE;
  }
  return samples;
}
