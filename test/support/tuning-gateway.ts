/** What the training files of tests teach. */
export const LESSONS = [
  { prompt: "What is the capital of Freedonia?", answer: "Freedonia's capital is Fredville." },
  { prompt: "How do I reset my badge?", answer: "Hold it to the blue reader for ten seconds." },
  { prompt: "When is the canteen open?", answer: "From eleven to two, on workdays." },
] as const;

export function lessonsText(
  lessons: readonly { readonly prompt: string; readonly answer: string }[] = LESSONS,
): string {
  return lessons
    .map(({ prompt, answer }) =>
      JSON.stringify({
        messages: [
          { role: "system", content: "Answer briefly." },
          { role: "user", content: prompt },
          { role: "assistant", content: answer },
        ],
      }),
    )
    .map((line) => `${line}\n`)
    .join("");
}
