import { afterAll, beforeEach, expect, test } from "bun:test";
import {
  AUDIO_KEY,
  audioFailureOf,
  audioProvider,
  readAll,
  speechCall,
  startAudioUpstream,
  transcriptionCall,
  transcriptOf,
} from "../support/audio-upstream.ts";

const upstream = startAudioUpstream();
const provider = audioProvider("google", `${upstream.origin}/v1beta`);

beforeEach(() => {
  upstream.asked.length = 0;
});
afterAll(() => upstream.stop());

const USAGE = {
  promptTokenCount: 8,
  candidatesTokenCount: 48,
  promptTokensDetails: [{ modality: "TEXT", tokenCount: 8 }],
  candidatesTokensDetails: [{ modality: "AUDIO", tokenCount: 48 }],
};

/** A response as Google's documentation shows it. */
function spoken(sound: string, more: object = {}): object {
  const data = Buffer.from(sound).toString("base64");
  const inlineData = { mimeType: "audio/L16;codec=pcm;rate=24000", data };
  return {
    candidates: [{ content: { parts: [{ inlineData }], role: "model" }, index: 0, ...more }],
  };
}

const whole = (sound: string) => ({
  ...spoken(sound, { finishReason: "STOP" }),
  usageMetadata: USAGE,
});

function answerEvents(...events: readonly object[]): void {
  const text = events.map((event) => `data: ${JSON.stringify(event)}\r\n\r\n`).join("");
  upstream.answer = () => new Response(text, { headers: { "content-type": "text/event-stream" } });
}

test("speech of models that do not stream comes whole, with its tokens", async () => {
  upstream.answer = () => Response.json(whole("samples!"));
  const call = speechCall("gemini-2.5-flash-preview-tts", {
    voice: "Kore",
    format: "wav",
    instructions: "Say cheerfully",
  });
  const speech = await provider.speak!(call);
  const bytes = Buffer.concat((await readAll(speech.reader())).pieces);
  expect(bytes.toString("latin1", 0, 4)).toBe("RIFF");
  expect(bytes.subarray(44).toString()).toBe("samples!");
  expect(speech.usage()).toMatchObject({
    promptTokens: 8,
    completionTokens: 48,
    audioCompletionTokens: 48,
  });
  const [asked] = upstream.asked;
  expect(asked!.path).toBe("/v1beta/models/gemini-2.5-flash-preview-tts:generateContent");
  expect(asked!.headers.get("x-goog-api-key")).toBe(AUDIO_KEY);
  expect(asked!.json()).toEqual({
    contents: [{ role: "user", parts: [{ text: "Say cheerfully:\nGood morning." }] }],
    generationConfig: {
      responseModalities: ["AUDIO"],
      speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: "Kore" } } },
    },
  });
});

test("speech of later models is streamed, and its tokens are told at the end", async () => {
  answerEvents({ ...spoken("first "), usageMetadata: { promptTokenCount: 8 } }, spoken("second"), {
    candidates: [{ finishReason: "STOP" }],
    usageMetadata: USAGE,
  });
  const speech = await provider.speak!(speechCall("gemini-3.8-flash-tts", { format: "pcm" }));
  const reader = speech.reader();
  expect(speech.usage()).toBeUndefined();
  const { pieces } = await readAll(reader);
  expect(Buffer.concat(pieces).toString()).toBe("first second");
  expect(speech.usage()).toMatchObject({ completionTokens: 48 });
  expect(upstream.asked[0]!.path).toBe(
    "/v1beta/models/gemini-3.8-flash-tts:streamGenerateContent?alt=sse",
  );
});

test("speech that is refused, broken off or no samples is a failure", async () => {
  const blocked = { promptFeedback: { blockReason: "PROHIBITED_CONTENT" } };
  const odd = {
    candidates: [{ content: { parts: [{ inlineData: { mimeType: "audio/mp3", data: "AA==" } }] } }],
  };
  const cases: readonly (readonly [object, string])[] = [
    [blocked, "content_policy"],
    [{ candidates: [{ finishReason: "SAFETY" }] }, "content_policy"],
    [{ candidates: [{ finishReason: "OTHER" }] }, "unavailable"],
    [odd, "unavailable"],
    [{ error: { code: 429, message: "slow", status: "RESOURCE_EXHAUSTED" } }, "rate_limited"],
  ];
  for (const [body, kind] of cases) {
    upstream.answer = () => Response.json(body);
    const ofWhole = provider.speak!(speechCall("gemini-2.5-pro-preview-tts", { format: "pcm" }));
    expect((await audioFailureOf(ofWhole)).kind).toBe(kind as never);
    answerEvents(body);
    const streamed = await provider.speak!(speechCall("gemini-3.8-flash-tts", { format: "pcm" }));
    expect((await readAll(streamed.reader())).failure).toMatchObject({ kind });
  }
  answerEvents(spoken("half"));
  const cut = await provider.speak!(speechCall("gemini-3.8-flash-tts", { format: "pcm" }));
  const { pieces, failure } = await readAll(cut.reader());
  expect(Buffer.concat(pieces).toString()).toBe("half");
  expect(failure).toMatchObject({ kind: "unavailable" });
});

test("a transcript is asked for in words, with the file in base64", async () => {
  upstream.answer = () =>
    Response.json({
      candidates: [
        { content: { parts: [{ text: "Guten Tag.\n" }] }, finishReason: "STOP", index: 0 },
      ],
      usageMetadata: {
        promptTokenCount: 90,
        candidatesTokenCount: 4,
        promptTokensDetails: [
          { modality: "TEXT", tokenCount: 10 },
          { modality: "AUDIO", tokenCount: 80 },
        ],
      },
    });
  const call = transcriptionCall("gemini-2.5-flash", { language: "de", prompt: "Ada Lovelace" });
  const transcript = await transcriptOf(provider.transcribe!(call));
  expect(transcript.text).toBe("Guten Tag.");
  expect(transcript.usage).toMatchObject({
    promptTokens: 90,
    audioPromptTokens: 80,
    completionTokens: 4,
  });
  const { contents } = upstream.asked[0]!.json() as {
    contents: { parts: [{ text: string }, { inlineData: { mimeType: string; data: string } }] }[];
  };
  const [{ text }, { inlineData }] = contents[0]!.parts;
  expect(text).toContain("word for word");
  expect(text).toContain("The language of the recording is de.");
  expect(text).toContain("Ada Lovelace");
  expect(inlineData.mimeType).toBe("audio/wav");
  expect(Buffer.from(inlineData.data, "base64").toString()).toBe("RIFF of a wave");
});

test("a translation asks for English, and a transcript that is refused or cut is a failure", async () => {
  upstream.answer = () =>
    Response.json({
      candidates: [{ content: { parts: [{ text: "Good day." }] }, finishReason: "STOP" }],
    });
  const call = transcriptionCall("gemini-2.5-flash", { task: "translate" });
  expect((await transcriptOf(provider.transcribe!(call))).text).toBe("Good day.");
  expect(JSON.stringify(upstream.asked[0]!.json())).toContain("in English");
  for (const [finishReason, kind] of [
    ["SAFETY", "content_policy"],
    ["MAX_TOKENS", "unavailable"],
  ] as const) {
    upstream.answer = () =>
      Response.json({ candidates: [{ content: { parts: [{ text: "Good" }] }, finishReason }] });
    const failing = provider.transcribe!(transcriptionCall("gemini-2.5-flash"));
    expect((await audioFailureOf(failing)).kind).toBe(kind);
  }
});
