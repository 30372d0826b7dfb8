/** Transcripts in OpenAI's form: of any recording the same, in the format that the form asks for. */

const SEGMENTS = [
  { id: 0, seek: 0, start: 0, end: 1.25, text: " Hello there.", tokens: [1, 2], temperature: 0 },
  { id: 1, seek: 0, start: 1.25, end: 2, text: " Bye --> now.", tokens: [3], temperature: 0 },
];
export const SAID = "Hello there. Bye --> now.";
const WORDS = [
  { word: "Hello", start: 0, end: 0.6 },
  { word: "there", start: 0.6, end: 1.25 },
];
const USAGE = {
  type: "tokens",
  input_tokens: 24,
  input_token_details: { text_tokens: 4, audio_tokens: 20 },
  output_tokens: 6,
  total_tokens: 30,
};

export function isTranscript(path: string): boolean {
  return path.endsWith("/audio/transcriptions") || path.endsWith("/audio/translations");
}

export async function answerTranscript(request: Request): Promise<Response> {
  const form = await request.formData();
  const task = new URL(request.url).pathname.endsWith("translations") ? "translate" : "transcribe";
  const file = form.get("file");
  if (!(file instanceof File) || file.size === 0) {
    return Response.json({ error: { message: "no file", param: "file" } }, { status: 400 });
  }
  if (form.get("stream") === "true") return streamed();
  if (form.get("response_format") === "diarized_json") {
    const speakers = SEGMENTS.map(({ id, start, end, text }) => ({
      ...{ type: "transcript.text.segment", id: `seg_${id}`, start, end, text },
      speaker: id === 0 ? "A" : "B",
    }));
    return Response.json({ task, duration: 9_999, text: SAID, segments: speakers });
  }
  if (form.get("response_format") !== "verbose_json") {
    return Response.json({ text: SAID, usage: USAGE });
  }
  const asked = form.getAll("timestamp_granularities[]");
  const timed = { segments: SEGMENTS, ...(asked.includes("word") && { words: WORDS }) };
  return Response.json({ task, language: "english", duration: 9_999, text: SAID, ...timed });
}

function streamed(): Response {
  const events = [
    ...SAID.split(/(?<= )/).map((delta) => ({ type: "transcript.text.delta", delta })),
    { type: "transcript.text.done", text: SAID, usage: USAGE },
  ];
  const frames = events.map((event) => `data: ${JSON.stringify(event)}\n\n`);
  return new Response(frames.join(""), { headers: { "content-type": "text/event-stream" } });
}
