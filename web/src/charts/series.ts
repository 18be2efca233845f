// Letters and colours of curves over each other.

/** As many as there are colours in style/tokens.css. */
export const MAX_SERIES = 8;

export const letterOf = (index: number): string => String.fromCharCode(65 + index);
export const colorOf = (index: number): string => `--series-${index + 1}`;
