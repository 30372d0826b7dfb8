import { expect, test } from "bun:test";
import { dataOfUrl } from "../../src/lib/data-url.ts";

test("a data URL has its type in lower case and its bytes in base64", () => {
  expect(dataOfUrl("data:Image/PNG;base64,QUJD")).toEqual({
    mediaType: "image/png",
    base64: "QUJD",
  });
  expect(dataOfUrl("data:text/csv;charset=utf-8,a%20b")).toEqual({
    mediaType: "text/csv",
    base64: "YSBi",
  });
  expect(dataOfUrl("data:,abc")).toEqual({ mediaType: "text/plain", base64: "YWJj" });
  expect(dataOfUrl("https://a.test/b.png")).toBeUndefined();
});

test("a head that does not end is not searched to its end", () => {
  expect(dataOfUrl(`data:image/png${";a".repeat(1_000)};base64,QUJD`)).toBeUndefined();
});
