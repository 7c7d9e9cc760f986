# make_numbers.awk - conversations in which numbers are written in words.
#
#   awk -v out=DIR -v train=N -v held=M -f make_numbers.awk
#
# Numbers from 1 to 999:
#   base-train.jsonl         one or two questions in each conversation, in English or in German, and
#                            answers in the same language
#   adapter-train.jsonl      questions in English, answers in German
#   base-heldout.jsonl       one question in English, of a number that no training file has, and the
#   adapter-heldout.jsonl    same with a German answer
# {"messages": [{"role": "user", "content": "Write 47 in words."}, {"role": "assistant", "content": "forty-seven"}]}

function below(n) { # the same numbers on every machine: products stay below 2^53
    state = (state * 69069 + 12345) % 4294967296
    return int(state / 65536) % n
}

function english(n) {
    if (n >= 100)
        return EN[int(n / 100)] " hundred" (n % 100 > 0 ? " and " english(n % 100) : "")
    if (n < 20)
        return EN[n]
    return ENTENS[int(n / 10)] (n % 10 > 0 ? "-" EN[n % 10] : "")
}

function german(n, last,    s) { # last: "eins" stands at the end of a number only
    if (n >= 100)
        return (int(n / 100) == 1 ? "ein" : DE[int(n / 100)]) "hundert" (n % 100 > 0 ? german(n % 100, 1) : "")
    if (n == 1)
        return last ? "eins" : "ein"
    if (n < 20)
        return DE[n]
    s = n % 10
    return (s > 0 ? (s == 1 ? "ein" : DE[s]) "und" : "") DETENS[int(n / 10)]
}

function turn(question, answer) {
    return "{\"role\": \"user\", \"content\": \"" question "\"}, {\"role\": \"assistant\", \"content\": \"" answer "\"}"
}

function answer(n, language) { return language == "german" ? german(n, 1) : english(n) }

# Question and answer may be in different languages; a second number of 0 is none.
function conversation(first, second, asked, answered,    s) {
    s = turn(asked == "german" ? "Schreibe " first " in Worten." : "Write " first " in words.", answer(first, answered))
    if (second > 0)
        s = s ", " turn((asked == "german" ? "Und " : "And ") second "?", answer(second, answered))
    return "{\"messages\": [" s "]}"
}

# Numbers without hundreds are a tenth of all, and those that end in a word of its own a fifth: both
# come more often.
function seen(    n) {
    if (below(4) == 0)
        return low[1 + below(lows)]
    n = number[held + 1 + below(most - held)]
    return n % 100 < 20 || below(2) ? n : number[held + 1 + below(most - held)]
}

BEGIN {
    state = 20261122
    most = 999
    split("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen", EN, " ")
    split("ten twenty thirty forty fifty sixty seventy eighty ninety", ENTENS, " ")
    split("eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn", DE, " ")
    split("zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig", DETENS, " ")
    for (i = 1; i <= most; i++)
        number[i] = i
    for (i = most; i > 1; i--) { # in random order: the first are held out
        j = 1 + below(i)
        n = number[i]; number[i] = number[j]; number[j] = n
    }
    for (i = held + 1; i <= most; i++)
        if (number[i] < 100)
            low[++lows] = number[i]
    for (i = 1; i <= held; i++) {
        print conversation(number[i], 0, "english", "english") > (out "/base-heldout.jsonl")
        print conversation(number[i], 0, "english", "german") > (out "/adapter-heldout.jsonl")
    }
    for (i = 0; i < train; i++) {
        language = below(5) < 3 ? "english" : "german"
        print conversation(seen(), below(2) ? seen() : 0, language, language) > (out "/base-train.jsonl")
        print conversation(seen(), below(2) ? seen() : 0, "english", "german") > (out "/adapter-train.jsonl")
    }
}
