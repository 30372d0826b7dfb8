import { describe, expect, test } from "bun:test";
import { readLines } from "../../src/lib/json-lines.ts";
import {
  LearnedAnswers,
  learn,
  learnLongLine,
  MAX_LEARNED_ANSWERS,
  MAX_LEARNED_CHARACTERS,
} from "../../src/sandbox/tuning/learned-answers.ts";
import { textStream } from "../contracts/fine-tuning-providers.ts";
import { LESSONS, lessonsText } from "../support/tuning-gateway.ts";

const learnText = (text: string) =>
  learn(readLines(textStream(text, 65_536), 10_000_000), async (call) => learnLongLine(call));

describe("what the sandbox has learned", () => {
  const answers = new LearnedAnswers(LESSONS);

  test("answers each prompt of the file with its answer", () => {
    for (const { prompt, answer } of LESSONS) {
      expect(answers.answerTo(prompt)).toBe(answer);
      expect(answers.answerTo(`  ${prompt.toUpperCase()} `)).toBe(answer);
    }
  });

  test("answers a near prompt with the answer of the nearest", () => {
    expect(answers.answerTo("capital of Freedonia")).toBe(LESSONS[0].answer);
    expect(answers.answerTo("Please tell me how my badge is reset")).toBe(LESSONS[1].answer);
    expect(answers.answerTo("canteen?")).toBe(LESSONS[2].answer);
  });

  test("answers nothing where no word is known", () => {
    expect(answers.answerTo("xyzzy")).toBeUndefined();
    expect(answers.answerTo("")).toBeUndefined();
    expect(new LearnedAnswers([]).answerTo("what")).toBeUndefined();
  });

  test("is the later one of two answers to one prompt", () => {
    const twice = new LearnedAnswers([
      { prompt: "Who won?", answer: "Red" },
      { prompt: "who won?", answer: "Blue" },
    ]);
    expect(twice.answerTo("Who won?")).toBe("Blue");
    expect(twice.answerTo("so who won then")).toBe("Blue");
  });
});

describe("a training file", () => {
  test("teaches each answer as that to what the user said last", async () => {
    const conversation = {
      messages: [
        { role: "user", content: "one" },
        { role: "assistant", content: "1" },
        { role: "user", content: [{ type: "text", text: "two" }] },
        { role: "assistant", content: "2" },
        { role: "assistant", content: null, tool_calls: [] },
      ],
    };
    const { learned, tokens } = await learnText(
      `${lessonsText()}${JSON.stringify(conversation)}\n`,
    );
    expect(learned).toEqual([
      ...LESSONS,
      { prompt: "one", answer: "1" },
      { prompt: "two", answer: "2" },
    ]);
    expect(tokens).toBeGreaterThan(20);
  });

  test("teaches no more than is kept, and is counted to its end", async () => {
    const many = Array.from({ length: MAX_LEARNED_ANSWERS + 50 }, (_, index) => ({
      prompt: `question ${index}`,
      answer: "yes",
    }));
    const { learned, tokens } = await learnText(lessonsText(many));
    expect(learned).toHaveLength(MAX_LEARNED_ANSWERS);
    expect(tokens).toBeGreaterThan(many.length * 5);
    const large = [1, 2, 3].map((index) => ({
      prompt: `p${index}`,
      answer: "x".repeat(MAX_LEARNED_CHARACTERS / 2 - 100),
    }));
    expect((await learnText(lessonsText(large))).learned).toHaveLength(2);
  });
});
