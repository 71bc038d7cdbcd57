/** The errors of a device. No message contains a person's value. */

/**
 * The device cannot do what was asked. A failed call of `Device` or `Wallet` has returned no report. But a failed `Device.answer` may
 * have made the reports of other attributes, which `Device.waiting` returns, and a failed `Sender.attempt` may have sent reports.
 */
export class DeviceError extends Error {
  override readonly name: string = "DeviceError";
}

/** This version of the device cannot answer the survey. */
export class UnknownSurvey extends DeviceError {
  override readonly name = "UnknownSurvey";
}

/** The device survey is wrong: its hash or its parameters do not fit its text, or a mechanism could lose more than the text states. */
export class UnsafeSurvey extends DeviceError {
  override readonly name = "UnsafeSurvey";
}

/** The survey has no signature by a key that the application expects. */
export class NotSigned extends DeviceError {
  override readonly name = "NotSigned";
}

/** The survey requires a relay, and the application gave none. */
export class RelayRequired extends DeviceError {
  override readonly name = "RelayRequired";
}

/** The store, or the application's pin, belongs to another survey. */
export class WrongSurvey extends DeviceError {
  override readonly name = "WrongSurvey";
}

/** The survey may cost more privacy than the application allows. The store is as before the call. */
export class CostlySurvey extends DeviceError {
  override readonly name = "CostlySurvey";

  /**
   * @param survey name of the survey.
   * @param asked the largest loss of all reports while the values stay the same, in nats; Infinity if nothing bounds it.
   * @param allowed the application's maximum, in nats.
   */
  constructor(
    readonly survey: string,
    readonly asked: number,
    readonly allowed: number,
  ) {
    super(`${survey} may cost ${nats(asked)} while the values stay the same; the maximum is ${nats(allowed)}`);
  }
}

/** Other processes or tabs hold the store. */
export class StoreHeld extends DeviceError {
  override readonly name = "StoreHeld";
}

/** The storage is full. */
export class StoreFull extends DeviceError {
  override readonly name = "StoreFull";
}

/** The store is empty but should have an enrolment or a wallet, or it has another enrolment than before. */
export class StoreCleared extends DeviceError {
  override readonly name = "StoreCleared";
}

/** The survey asks for more privacy budget than the wallet has left. The wallet is as before the call. */
export class WalletFull extends DeviceError {
  override readonly name = "WalletFull";

  /**
   * @param survey name of the survey.
   * @param windowSeconds length of the budget's window; null for the budget for ever.
   * @param asked the survey's claim, in nats; Infinity if nothing bounds its loss.
   * @param left what the wallet has left, in nats.
   */
  constructor(
    readonly survey: string,
    readonly windowSeconds: number | null,
    readonly asked: number,
    readonly left: number,
  ) {
    const span = windowSeconds === null ? "for ever" : `within ${windowSeconds} s`;
    const unbounded = asked === Infinity ? ": its level has no lifetime_reports and the survey has no end" : "";
    super(`${survey} asks ${nats(asked)} ${span}${unbounded}; the wallet has ${nats(left)} left`);
  }
}

/** Formats a privacy loss with its unit, with at most `digits` significant digits. */
export function nats(loss: number, digits = 6): string {
  const text = loss === Infinity ? "inf" : String(Number(loss.toPrecision(digits)));
  return `${text} nat${text === "1" ? "" : "s"}`;
}

/**
 * The step can no longer be reported: its envelope was dropped, later steps are settled, or (in a wallet) the step is
 * before the enrolment. A second report would cost more privacy. The call has made no report of the attribute.
 */
export class StepForgotten extends DeviceError {
  override readonly name: string = "StepForgotten";

  /**
   * @param attribute name of the attribute.
   * @param step the requested step.
   * @param earliest the first later step that can still be reported for the first time.
   */
  constructor(
    readonly attribute: string,
    readonly step: number,
    readonly earliest: number,
    message = `step ${step} of ${attribute} can be reported no more; the next that can be reported is ${earliest}`,
  ) {
    super(message);
  }
}

/**
 * The present step of the device's clock can no longer be reported, because the clock was wrong before or is wrong now. The device
 * reports again when the clock shows step `earliest`.
 */
export class ClockWentBack extends StepForgotten {
  override readonly name = "ClockWentBack";

  constructor(attribute: string, step: number, earliest: number) {
    super(
      attribute,
      step,
      earliest,
      `the clock went back to step ${step} of ${attribute}, which can be reported no more; the next is step ${earliest}`,
    );
  }
}
