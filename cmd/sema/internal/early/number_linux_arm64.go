package early

const prlimit64 = 261
