# gate: compile
# reason: ^the process gave no answer within \d+ s and was ended during import \(line \d, in
#         <module>\)$
"""Never finishes its import."""

while True:
    pass
