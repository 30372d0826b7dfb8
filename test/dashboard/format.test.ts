import { describe, expect, test } from "bun:test";
import { change, percent, usd, usdFine } from "../../src/dashboard/web/format.ts";

describe("an amount in USD", () => {
  test("is shown to the cent from one cent on, and at zero and below", () => {
    const shown = [0, 0.01, 0.015, 0.994, 12.5, 1234.567, -3, -0.004, -0.0001].map(usd);
    expect(shown).toEqual([
      ...["$0.00", "$0.01", "$0.02", "$0.99", "$12.50", "$1,234.57"],
      ...["-$3.00", "$0.00", "$0.00"],
    ]);
  });

  test("has two significant digits if it is positive and below one cent", () => {
    const shown = [0.000033, 0.0042, 0.00421, 0.005, 0.00994, 0.009999, 0.000000001].map(usd);
    expect(shown).toEqual([
      ...["$0.000033", "$0.0042", "$0.0042", "$0.005", "$0.0099", "$0.01", "$0.000000001"],
    ]);
  });

  test("is zero if only the inaccuracy of floats remains", () => {
    expect(usd(0.3 - 0.1 - 0.2 + 5.6e-17)).toBe("$0.00");
    expect(usd(1e-17)).toBe("$0.00");
  });
});

test("the cost of a request is never shown as zero if it was charged", () => {
  const shown = [0.000731, 0.0000005, 0.0000002, 0.000000001, 0].map(usdFine);
  expect(shown).toEqual(["$0.000731", "$0.000001", "$0.0000002", "$0.000000001", "$0.000000"]);
});

test("a share that is not zero is never shown as 0%", () => {
  const shown = [0, 0.00049, 0.0005, 0.039, 0.42, 1].map(percent);
  expect(shown).toEqual(["0%", "<0.1%", "0.1%", "3.9%", "42%", "100%"]);
});

test("a large change is a factor", () => {
  expect([change(0.5, 149), change(4, 5), change(5, 4)]).toEqual(["↑ 298×", "↑ +25%", "↓ −20%"]);
});
