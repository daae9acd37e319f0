"""Steps of schedules over tables of plans: closed forms, and runs that are carried on."""
